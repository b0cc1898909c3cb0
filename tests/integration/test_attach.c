/* test_attach.c: the handshake on the Unix socket, said well and badly by hand. Whatever a client says, the node
 * answers it with a sentence and goes on serving the others.
 */
#include "tests/support/hand.h"

#include "store/berth.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cmocka.h>

static void a_right_hello_is_welcome(void **unused)
{
    (void)unused;
    struct hand h;
    struct stat st;
    hand_attach(&h);
    assert_true(h.welcome.session > 0);
    assert_int_equal(h.welcome.pool_bytes, 8u << 20);
    assert_int_equal(h.welcome.pin_entries, PINS_SEGMENT);
    assert_int_equal(h.welcome.flags, 0);
    assert_int_equal(fstat(h.got[4], &st), 0);
    assert_int_equal(st.st_size, sizeof(struct pins_file));
    /* Pool and pins may be written, the node's own files may not. */
    const int writable[] = {1, 0, 0, 0, 1};
    for (unsigned i = 0; i < 5; i++) {
        void *map = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, h.got[i], 0);
        assert_int_equal(map != MAP_FAILED, writable[i]);
        if (map != MAP_FAILED)
            munmap(map, 4096);
    }
    hand_works(&h, 1);
    hand_works(&h, 2);
    hand_close(&h);
}

static void a_reader_gets_no_writable_pool(void **unused)
{
    (void)unused;
    struct hand h;
    hand_open(&h);
    h.hello.flags = ATTACH_READER;
    hand_send(&h);
    hand_receive(&h);
    assert_int_equal(h.welcome.status, 0);
    assert_int_equal(h.welcome.flags, ATTACH_READER);
    assert_ptr_equal(mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, h.got[0], 0), MAP_FAILED);
    hand_close(&h);
}

static void wrong_words_are_refused(void **unused)
{
    (void)unused;
    struct hand h;
    hand_open(&h);
    h.hello.magic++;
    hand_refused(&h, -EPROTO);
    hand_open(&h);
    h.bytes = 5;
    hand_refused(&h, -EPROTO);
    hand_open(&h);
    h.bytes = sizeof(h.hello) - 1;
    hand_refused(&h, BERTH_EFORMAT);
    hand_open(&h);
    h.hello.format++;
    hand_refused(&h, BERTH_EFORMAT);
    hand_open(&h);
    h.hello.fingerprint ^= 1;
    hand_refused(&h, BERTH_EFORMAT);
    hand_open(&h);
    h.hello.flags = 0x80;
    hand_refused(&h, -EINVAL);
    hand_open(&h);
    memset(h.hello.name, 'x', sizeof(h.hello.name));
    hand_refused(&h, -EINVAL);
    hand_node_goes_on();
}

static void wrong_descriptors_are_refused(void **unused)
{
    (void)unused;
    struct hand h;
    hand_open(&h);
    h.n_fds = 0;
    hand_refused(&h, -EINVAL);
    hand_open(&h);
    h.n_fds = 2;
    hand_refused(&h, -EINVAL);
    hand_open(&h);
    h.fds[3] = h.fds[0];
    h.n_fds = 4;
    hand_refused(&h, -EINVAL);
    hand_open(&h); /* no eventfd: a pipe could be full and stop the node */
    int ends[2];
    assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
    int wake = h.fds[1];
    h.fds[1] = ends[1];
    hand_refused(&h, -EINVAL);
    close(ends[0]);
    close(wake);
    hand_node_goes_on();
}

static void spoil_ring(struct hand *h, int fd)
{
    hand_open(h);
    close(h->fds[0]);
    h->fds[0] = fd;
}

static void wrong_rings_are_refused(void **unused)
{
    (void)unused;
    const size_t size = sizeof(struct ring_shared);
    const unsigned seals = F_SEAL_SHRINK | F_SEAL_GROW;
    struct hand h;
    spoil_ring(&h, hand_ring_file(0, size));
    hand_refused(&h, -EPERM);
    spoil_ring(&h, hand_ring_file(F_SEAL_GROW, size));
    hand_refused(&h, -EPERM);
    spoil_ring(&h, hand_ring_file(seals, size - 4096));
    hand_refused(&h, -EINVAL);
    spoil_ring(&h, hand_ring_file(seals, size + 4096));
    hand_refused(&h, -EINVAL);
    spoil_ring(&h, open("/dev/null", O_RDWR | O_CLOEXEC));
    hand_refused(&h, -EPERM);
    spoil_ring(&h, hand_ring_file(seals, size)); /* all zeros */
    hand_refused(&h, BERTH_EFORMAT);
    hand_open(&h);
    atomic_store(&h.ring->request_tail, 64);
    hand_refused(&h, BERTH_EFORMAT);
    hand_node_goes_on();
}

int main(void)
{
    printf("seed 0 (nothing is random here)\n");
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_right_hello_is_welcome), cmocka_unit_test(a_reader_gets_no_writable_pool),
        cmocka_unit_test(wrong_words_are_refused),  cmocka_unit_test(wrong_descriptors_are_refused),
        cmocka_unit_test(wrong_rings_are_refused),
    };
    return cmocka_run_group_tests(tests, hand_setup, hand_teardown);
}
