/* test_remote_fresh.c: clients without a node and the nodes' setting `fresh`. */
#include "tests/support/afar.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static void start_fresh(struct daemon *d, const char *listen, const char *fresh)
{
    daemon_start(d, (const char *[]){"--pool", "8M", "--lock", "off", "--name", "one", "--listen", listen, "--lease",
                                     "30s", "--replaceable", "models", "--fresh", fresh, NULL});
}

static struct berth_key model(struct berth *b)
{
    struct berth_key key = key_of("m");
    assert_int_equal(berth_namespace(b, "models", &key.ns), 0);
    return key;
}

struct sight {
    struct berth *c;
    long size;
};

static bool sees(void *arg)
{
    const struct sight *s = arg;
    return berth_get_into(s->c, model(s->c), afar_got, sizeof afar_got, 0, berth_deadline(SECONDS(5))) == s->size;
}

/* How old news may be is the nodes' word: the lease is good for 30 s, and what it gives for one. When the nodes say
 * otherwise the client has to be opened again. */
static void test_how_fresh(void **unused)
{
    (void)unused;
    static struct daemon one;
    char listen[64];
    snprintf(listen, sizeof listen, "tcp://127.0.0.1:%u", afar_port());
    start_fresh(&one, listen, "1s");
    struct berth *local = daemon_open(&one, "test"), *c = afar_client(listen);
    struct berth_key key = model(local);
    assert_int_equal(berth_put(local, key, "one", 3, NULL), 0);
    assert_true(eventually(sees, &(struct sight){c, 3}, 15000));
    assert_int_equal(berth_put(local, key, "three", 5, NULL), 0);
    assert_true(eventually(sees, &(struct sight){c, 5}, 15000)); /* half of the lease */
    berth_close(local);
    daemon_end(&one);
    start_fresh(&one, listen, "2s");
    struct afar_wish w = {.c = c, .key = "nowhere", .want = BERTH_ERESTART};
    assert_true(eventually(afar_comes, &w, SOON_MS));
    berth_close(c);
    daemon_end(&one);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_how_fresh)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
