/* test_null_tables.c: no table of a back end has a NULL pointer, and what a null table does is refuse. */
#include "index/lmdb.h"
#include "replication/loop.h"
#include "replication/tcp.h"
#include "store/evict.h"
#include "store/memkind.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

/* Every table here is a structure of pointers and nothing else. */
static void whole(const char *name, const void *table, size_t bytes)
{
    assert_int_equal(bytes % sizeof(void *), 0);
    for (size_t i = 0; i < bytes / sizeof(void *); i++) {
        void *member;
        memcpy(&member, (const char *)table + i * sizeof member, sizeof member);
        if (member == NULL)
            fail_msg("%s: member %zu is NULL", name, i);
    }
}

static void no_null(void **unused)
{
    (void)unused;
    whole("null_memkind", &null_memkind, sizeof null_memkind);
    whole("host_memkind", &host_memkind, sizeof host_memkind);
    whole("null_transport", &null_transport, sizeof null_transport);
    whole("tcp_transport", &tcp_transport, sizeof tcp_transport);
    whole("loop_transport", &loop_transport, sizeof loop_transport);
    whole("evict_lru", &evict_lru, sizeof evict_lru);
    whole("lmdb_ops", &lmdb_ops, sizeof lmdb_ops);
}

static void null_memory_refuses(void **unused)
{
    (void)unused;
    struct mem_pool p = {0};
    char why[100] = "", byte;
    void *mr;
    assert_int_equal(null_memkind.reserve(&p, "/x", 4096, MEM_LOCK_OFF, 1, NULL, NULL, why, sizeof why), -EOPNOTSUPP);
    assert_non_null(strstr(why, "'/x'"));
    assert_int_equal(null_memkind.map(&p, 0, 4096, 1), -EOPNOTSUPP);
    assert_int_equal(null_memkind.copy_in(&p, 0, &byte, 1), 0);
    assert_int_equal(null_memkind.copy_out(&p, 0, &byte, 1), -EOPNOTSUPP);
    assert_int_equal(null_memkind.register_nic(&p, NULL, 0, 1, &mr), -EOPNOTSUPP);
    assert_int_equal(host_memkind.register_nic(&p, NULL, 0, 1, &mr), -EOPNOTSUPP);
    assert_int_equal(null_memkind.publish(&p, 0, 1), -EOPNOTSUPP);
    null_memkind.unmap(&p);
    null_memkind.release(&p);
}

static void null_transport_refuses(void **unused)
{
    (void)unused;
    void *ctx = NULL;
    struct connection *c;
    struct transport_config config = {.listen = "peer:1"};
    struct transport_events events = {0};
    struct transport_stats stats;
    struct transfer t = {0};
    char why[100] = "", text[8];
    assert_int_equal(null_transport.resolve("peer:1", text, sizeof text, why, sizeof why), -EOPNOTSUPP);
    assert_int_equal(null_transport.open(&ctx, &config, &events, NULL, why, sizeof why), -EOPNOTSUPP);
    assert_non_null(strstr(why, "'peer:1'"));
    assert_int_equal(null_transport.address(ctx, text, sizeof text), -EOPNOTSUPP);
    assert_int_equal(null_transport.descriptor(ctx), -EOPNOTSUPP);
    assert_false(null_transport.look(ctx));
    assert_int_equal(null_transport.turn(ctx), -EOPNOTSUPP);
    assert_int_equal(null_transport.connect(ctx, "peer:2", NULL, &c, why, sizeof why), -EOPNOTSUPP);
    assert_non_null(strstr(why, "'peer:2'"));
    assert_int_equal(null_transport.expose(ctx, -1, NULL, 0), -EOPNOTSUPP);
    assert_int_equal(null_transport.read(ctx, NULL, &t), -EOPNOTSUPP);
    assert_int_equal(null_transport.cancel(ctx, &t), -EOPNOTSUPP);
    assert_int_equal(t.state, TRANSFER_IDLE);
    assert_int_equal(null_transport.send(ctx, NULL, why, 1), -EOPNOTSUPP);
    assert_int_equal(null_transport.stop(ctx, NULL, 1, -EIO), -EOPNOTSUPP);
    assert_int_equal(null_transport.fence(ctx, NULL), -EOPNOTSUPP);
    null_transport.flush(ctx);
    null_transport.stats(ctx, &stats);
    assert_int_equal(stats.posted, 0);
    null_transport.disconnect(ctx, NULL);
    null_transport.close(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_null),
        cmocka_unit_test(null_memory_refuses),
        cmocka_unit_test(null_transport_refuses),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
