/* test_settings.c: case A12 (sizes mean the same wherever they are written), precedence, every setting's bad values,
 * and that what is shown can be read back. */
#include "store/berth.h"
#include "store/shell/peers.h"
#include "store/shell/settings.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static struct settings s;
static char why[300];

static int set(const char *name, const char *value, enum setting_origin origin)
{
    why[0] = '\0';
    return settings_set(&s, name, value, origin, "here", why, sizeof why);
}

static void a12_size_units(void **unused)
{
    (void)unused;
    static const struct {
        const char *text;
        uint64_t bytes; /* 0: refused */
    } cases[] = {
        {"64M", 64u << 20},
        {"64MB", 64000000},
        {"64MiB", 64u << 20},
        {"64mb", 64000000},
        {"64 MiB", 64u << 20},
        {"0.5G", 1u << 29},
        {"1e9", 1000000000},
        {"64KiB", 65536},
        {"1024B", 1024},
        {"2097152", 2u << 20},
        {"2097151", 0}, /* whoever writes so few without a unit means another */
        {"1024", 0},
        {"", 0},
        {"MB", 0},
        {"-1G", 0},
        {"10X", 0},
        {"0", 0},
        {"0x10", 0},
        {"1.5", 0},
        {"99999999T", 0},
        {"64M ", 0},
        {"1 2M", 0},
    };
    static const enum setting_origin origins[] = {ORIGIN_FILE, ORIGIN_ENVIRONMENT, ORIGIN_URL, ORIGIN_FLAG};
    for (unsigned i = 0; i < sizeof cases / sizeof *cases; i++) {
        for (unsigned k = 0; k < 4; k++) {
            settings_init(&s);
            int e = set("mr-size", cases[i].text, origins[k]);
            if (cases[i].bytes == 0) {
                assert_int_equal(e, -EINVAL);
                assert_non_null(strstr(why, "'mr-size'"));
                assert_non_null(strstr(why, "MiB"));
                assert_int_equal(s.mr_size, UINT64_C(1) << 30);
            } else {
                assert_int_equal(e, 0);
                assert_int_equal(s.mr_size, cases[i].bytes);
            }
        }
    }
}

static void later_origins_win(void **unused)
{
    (void)unused;
    settings_init(&s);
    assert_int_equal(set("pool", "8M", ORIGIN_FLAG), 0);
    assert_int_equal(set("pool", "4M", ORIGIN_FILE), 0);
    assert_int_equal(s.pool, 8u << 20);
    assert_int_equal(set("pool", "nonsense", ORIGIN_FILE), -EINVAL); /* ignored, but not unchecked */
    assert_int_equal(set("pool", "16M", ORIGIN_FLAG), 0);
    assert_int_equal(s.pool, 16u << 20);
    unsigned i = 0;
    while (strcmp(settings_table[i].name, "pool") != 0)
        i++;
    assert_int_equal(s.source[i].origin, ORIGIN_FLAG);
    assert_string_equal(s.source[i].text, "16M");
    assert_string_equal(s.source[i].where, "here");
}

static void classes_are_a_list(void **unused)
{
    (void)unused;
    settings_init(&s);
    assert_int_equal(set("class", "300K", ORIGIN_FILE), 0);
    assert_int_equal(set("class", "1", ORIGIN_FILE), 0);
    assert_int_equal(s.n_classes, 2);
    assert_int_equal(s.classes[0], 75);
    assert_int_equal(s.classes[1], 1);
    assert_int_equal(set("class", "68K,5000", ORIGIN_FLAG), 0);
    assert_int_equal(s.n_classes, 2);
    assert_int_equal(s.classes[0], 17);
    assert_int_equal(s.classes[1], 2);
    assert_int_equal(set("class", "8K,", ORIGIN_FLAG), -EINVAL);
    assert_int_equal(set("class", "2G", ORIGIN_FLAG), -EINVAL);
    assert_int_equal(s.n_classes, 2);
    for (unsigned i = 0; i < 30; i++)
        assert_int_equal(set("class", "4K", ORIGIN_FLAG), 0);
    assert_int_equal(set("class", "4K", ORIGIN_FLAG), -EINVAL);
    assert_int_equal(s.n_classes, SETTINGS_CLASSES);
    assert_int_equal(set("class", "none", ORIGIN_FLAG), 0);
}

static void bad_values(void **unused)
{
    (void)unused;
    static const char *const bad[][2] = {
        {"region", ""},
        {"socket", ""},
        {"metrics", "0.0.0.0:9100"},
        {"metrics", ":9100"},
        {"metrics", "on"},
        {"metrics", "10.0.0.1:1"},
        {"metrics", "127.0.0.1"},
        {"metrics", "127.0.0.1:70000"},
        {"metrics", "unix:"},
        {"metrics", "127.0.0.1.evil.org:80"},
        {"policy", "fifo"},
        {"pool", "17T"},
        {"index-size", "4K"},
        {"max-objects", "0"},
        {"max-objects", "1K"},
        {"max-objects", "4294967295"},
        {"high", "0"},
        {"high", "101%"},
        {"high", "%"},
        {"high", "-5%"},
        {"low", "5%%"},
        {"draft-quota", "half"},
        {"pin-quota", "-1"},
        {"lock", "yes"},
        {"threads", "65"},
        {"populate", "no"},
        {"threads", ""},
        {"spin-us", "1ms"},
        {"mode", "0777"},
        {"mode", "0660"},
        {"quarantine", "1"},
        {"quarantine", "2d"},
        {"quarantine", "25h"},
        {"quarantine", ""},
        {"quarantine", "-1s"},
        {"log-level", "trace"},
    };
    settings_init(&s);
    for (unsigned i = 0; i < sizeof bad / sizeof *bad; i++) {
        if (set(bad[i][0], bad[i][1], ORIGIN_FLAG) != -EINVAL)
            fail_msg("'%s' was taken as %s", bad[i][1], bad[i][0]);
        assert_non_null(strstr(why, bad[i][0]));
    }
    char path[300];
    memset(path, 'x', sizeof path - 1);
    path[sizeof path - 1] = '\0';
    assert_int_equal(set("region", path, ORIGIN_FLAG), -EINVAL);
    assert_int_equal(set("socket", path, ORIGIN_FLAG), -EINVAL);
    assert_int_equal(set("pools", "1G", ORIGIN_FLAG), -ENOENT);
    assert_non_null(strstr(why, "'pools'"));
    assert_non_null(strstr(why, "`berthd --help` and `man berthd` list them all"));
    assert_int_equal(set("pool", "\x1b[2J", ORIGIN_FLAG), -EINVAL);
    assert_non_null(strstr(why, "\\x1b[2J"));
}

static void good_values(void **unused)
{
    (void)unused;
    settings_init(&s);
    assert_int_equal(set("metrics", "127.0.0.1:0", ORIGIN_FLAG), 0);
    assert_int_equal(set("metrics", "[::1]:9100", ORIGIN_FLAG), 0);
    assert_int_equal(set("metrics", "localhost:9100", ORIGIN_FLAG), 0);
    assert_int_equal(set("metrics", "unix:/run/m", ORIGIN_FLAG), 0);
    assert_int_equal(set("quarantine", "1.5s", ORIGIN_FLAG), 0);
    assert_int_equal(s.quarantine_ns, 1500000000);
    assert_int_equal(set("quarantine", "0s", ORIGIN_FLAG), 0);
    assert_int_equal(s.quarantine_ns, 0);
    assert_int_equal(set("quarantine", "2h", ORIGIN_FLAG), 0);
    assert_int_equal(s.quarantine_ns, INT64_C(7200000000000));
    assert_int_equal(set("mode", "640", ORIGIN_FLAG), 0);
    assert_int_equal(s.mode, 0640);
    assert_int_equal(set("lock", "required", ORIGIN_FLAG), 0);
    assert_int_equal(s.lock, MEM_LOCK_REQUIRED);
}

static void finish_resolves(void **unused)
{
    (void)unused;
    settings_init(&s);
    assert_int_equal(set("pool", "99M", ORIGIN_FLAG), 0);
    assert_int_equal(settings_finish(&s, why, sizeof why), 0);
    assert_int_equal(s.pool, 100u << 20);
    assert_int_equal(s.max_objects, 25600);
    assert_int_equal(s.high, 95u << 20);
    assert_int_equal(s.low, 90u << 20);
    assert_int_equal(s.draft_quota, 50u << 20);
    assert_true(s.threads >= 1 && s.threads <= 8);
    assert_true(s.index_size >= 25600 * 256);

    /* What is made is what is shown. */
    static const struct {
        const char *asked;
        uint64_t made;
    } objects[] = {{"1", 4096}, {"64", 4096}, {"4096", 4096}, {"4097", 4608}, {"10000", 10240}};
    for (unsigned i = 0; i < sizeof objects / sizeof *objects; i++) {
        char shown[32];
        settings_init(&s);
        assert_int_equal(set("max-objects", objects[i].asked, ORIGIN_FLAG), 0);
        assert_int_equal(settings_finish(&s, why, sizeof why), 0);
        assert_int_equal(s.max_objects, objects[i].made);
        unsigned at = 0;
        while (strcmp(settings_table[at].name, "max-objects") != 0)
            at++;
        settings_value(&s, at, shown, sizeof shown);
        assert_int_equal(strtoull(shown, NULL, 10), objects[i].made);
    }

    settings_init(&s);
    assert_int_equal(set("pool", "5G", ORIGIN_FLAG), 0);
    assert_int_equal(set("high", "12.5%", ORIGIN_FLAG), 0);
    assert_int_equal(settings_finish(&s, why, sizeof why), 0);
    assert_int_equal(s.max_objects, 262144 + 262144);
    assert_int_equal(s.high, UINT64_C(5) << 27);
    assert_true(s.low < s.high);

    settings_init(&s);
    assert_int_equal(set("high", "2G", ORIGIN_FLAG), 0);
    assert_int_equal(settings_finish(&s, why, sizeof why), -EINVAL);
    assert_non_null(strstr(why, "'high'"));
    settings_init(&s);
    assert_int_equal(set("high", "50%", ORIGIN_FLAG), 0);
    assert_int_equal(set("low", "60%", ORIGIN_FLAG), 0);
    assert_int_equal(settings_finish(&s, why, sizeof why), -EINVAL);
    assert_non_null(strstr(why, "'low' is 60%, 'high' 50%"));
}

static void shown_reads_back(void **unused)
{
    (void)unused;
    static struct settings again;
    char value[300];
    settings_init(&s);
    assert_int_equal(set("class", "300K,68K", ORIGIN_FLAG), 0);
    assert_int_equal(set("replaceable", "chat,kv.a", ORIGIN_FLAG), 0);
    assert_int_equal(set("pool", "66M", ORIGIN_FLAG), 0);
    assert_int_equal(set("high", "33.3%", ORIGIN_FLAG), 0);
    assert_int_equal(set("quarantine", "1500us", ORIGIN_FLAG), 0);
    assert_int_equal(settings_finish(&s, why, sizeof why), 0);
    settings_init(&again);
    for (unsigned i = 0; i < settings_count; i++) {
        settings_value(&s, i, value, sizeof value);
        if (settings_set(&again, settings_table[i].name, value, ORIGIN_FILE, "", why, sizeof why) != 0)
            fail_msg("%s = %s: %s", settings_table[i].name, value, why);
    }
    assert_int_equal(settings_finish(&again, why, sizeof why), 0);
    memset(again.source, 0, sizeof again.source);
    memset(s.source, 0, sizeof s.source);
    assert_memory_equal(&s, &again, sizeof s);
}

static void defaults_are_as_documented(void **unused)
{
    (void)unused;
    char value[300], expected[64];
    settings_init(&s);
    snprintf(expected, sizeof expected, "/dev/shm/berth-%u", (unsigned)geteuid());
    assert_string_equal(s.region, expected);
    assert_string_equal(s.listen, "off");
    for (unsigned i = 0; i < settings_count; i++) {
        const char *name = settings_table[i].name, *fallback = settings_table[i].fallback;
        assert_true(*settings_table[i].doc != '\0' && *settings_table[i].value != '\0' && *fallback != '\0');
        if (i >= 2 && strcmp(name, "name") != 0 && strcmp(name, "listen") != 0) {
            assert_int_equal(set(name, fallback, ORIGIN_DEFAULT), 0);
            settings_value(&s, i, value, sizeof value);
            assert_true(*value != '\0');
        }
    }
}

static void shares_are_shown_as_said(void **unused)
{
    (void)unused;
    char value[300];
    uint64_t bytes;
    for (int given = 0; given < 2; given++) {
        settings_init(&s);
        assert_int_equal(set("pool", "100M", ORIGIN_FLAG), 0);
        if (given)
            assert_int_equal(set("high", "76%", ORIGIN_FLAG), 0);
        assert_int_equal(settings_finish(&s, why, sizeof why), 0);
        for (unsigned i = 0; i < settings_count; i++) {
            const char *name = settings_table[i].name;
            bool share = settings_share(&s, i, &bytes);
            settings_value(&s, i, value, sizeof value);
            if (strcmp(name, "high") == 0) {
                assert_true(share && bytes == (given ? 76u : 95u) << 20);
                assert_string_equal(value, given ? "76%" : "95%");
            } else if (strcmp(name, "low") == 0) { /* follows high where only that was said */
                assert_true(share && bytes == (given ? 72u : 90u) << 20);
                assert_string_equal(value, given ? "72MiB" : "90%");
            } else {
                assert_int_equal(share, strcmp(name, "draft-quota") == 0 || strcmp(name, "lease-quota") == 0);
            }
        }
    }
}

static void namespaces(void **unused)
{
    (void)unused;
    settings_init(&s);
    assert_int_equal(settings_namespace(&s, "kv.a", "replaceable", "yes", "f:1", why, sizeof why), 0);
    assert_int_equal(settings_namespace(&s, "kv.b", "replaceable", "no", "f:2", why, sizeof why), 0);
    assert_int_equal(settings_namespace(&s, "kv.a", "replaceable", "no", "f:3", why, sizeof why), 0);
    assert_int_equal(s.n_namespaces, 2);
    assert_false(s.namespaces[0].replaceable);
    assert_int_equal(settings_namespace(&s, "a b", "replaceable", "yes", "f:4", why, sizeof why), -EINVAL);
    assert_int_equal(settings_namespace(&s, "", "replaceable", "yes", "f:4", why, sizeof why), -EINVAL);
    assert_int_equal(settings_namespace(&s, "kv.c", "replacable", "yes", "f:4", why, sizeof why), -EINVAL);
    assert_int_equal(settings_namespace(&s, "kv.c", "replaceable", "maybe", "f:4", why, sizeof why), -EINVAL);
    assert_int_equal(s.n_namespaces, 2);
    for (unsigned i = 2; i < SETTINGS_NAMESPACES; i++) {
        char name[16];
        snprintf(name, sizeof name, "n%u", i);
        assert_int_equal(settings_namespace(&s, name, "replaceable", "yes", "f:5", why, sizeof why), 0);
    }
    assert_int_equal(settings_namespace(&s, "more", "replaceable", "yes", "f:6", why, sizeof why), -EINVAL);
}

static int share(const char *value, enum setting_origin origin)
{
    return settings_set(&s, "share", value, origin, "x", why, sizeof why);
}

static void shares(void **unused)
{
    (void)unused;
    char value[300];
    settings_init(&s);
    assert_int_equal(settings_set(&s, "pool", "100MiB", ORIGIN_URL, "x", why, sizeof why), 0);
    assert_int_equal(settings_namespace(&s, "kv", "share", "30%", "f:1", why, sizeof why), 0);
    assert_int_equal(settings_namespace(&s, "lora", "share", "10MiB", "f:2", why, sizeof why), 0);
    assert_int_equal(settings_namespace(&s, "plain", "replaceable", "yes", "f:3", why, sizeof why), 0);
    static const char *const wrong[] = {"", "0", "0%", "101%", "x", "-1%", "5MiB,"};
    for (unsigned i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        snprintf(value, sizeof value, "kv=%s", wrong[i]);
        assert_int_equal(settings_namespace(&s, "kv", "share", wrong[i], "f:1", why, sizeof why), -EINVAL);
        assert_int_equal(share(value, ORIGIN_URL), -EINVAL);
    }
    assert_int_equal(share("30%", ORIGIN_URL), -EINVAL);
    assert_int_equal(share("a b=30%", ORIGIN_URL), -EINVAL);
    assert_int_equal(settings_finish(&s, why, sizeof why), 0);
    assert_int_equal(s.namespaces[0].share_bytes, 30u << 20);
    assert_int_equal(s.namespaces[1].share_bytes, 10u << 20);
    assert_int_equal(s.namespaces[2].share_bytes, 0);
    /* A flag's stand for those of the file, and add to each other. */
    assert_int_equal(share("kv=20%,b=1MiB", ORIGIN_URL), 0);
    assert_int_equal(share("c=2MiB", ORIGIN_URL), 0);
    assert_int_equal(settings_finish(&s, why, sizeof why), 0);
    settings_value(&s, settings_count - 1, value, sizeof value);
    assert_string_equal(value, "kv=20%,b=1MiB,c=2MiB");
    assert_int_equal(s.namespaces[1].share_bytes, 0);
    assert_int_equal(share("d=90%", ORIGIN_URL), 0);
    assert_int_equal(settings_finish(&s, why, sizeof why), -EINVAL);
    assert_non_null(strstr(why, "shares of namespaces"));
    settings_init(&s);
    for (unsigned i = 0; i < 64; i++) {
        snprintf(value, sizeof value, "n%u=1MiB", i);
        assert_int_equal(share(value, ORIGIN_URL), i < 63 ? 0 : -EINVAL);
    }
    assert_int_equal(share("n1=2MiB", ORIGIN_URL), 0);
}

static bool replaces(const char *name)
{
    for (uint32_t i = 0; i < s.n_namespaces; i++) {
        if (strcmp(s.namespaces[i].name, name) == 0)
            return s.namespaces[i].replaceable;
    }
    return false;
}

/* What the start asks a cgroup for: the home's table, where there are others, by the slots that the pool can have. */
static void home_is_counted(void **unused)
{
    (void)unused;
    uint64_t pool = UINT64_C(64) << 20, all;
    settings_init(&s);
    assert_int_equal(peers_home_bytes(16384, pool, &s), 0);
    assert_int_equal(set("peers", "a=tcp://127.0.0.1:1,b=tcp://127.0.0.1:2", ORIGIN_URL), 0);
    all = peers_home_bytes(16384, pool, &s);
    assert_true(all > 16384u * 4 * 168 && all < pool / 5);
    assert_int_equal(peers_home_bytes(1u << 30, pool, &s), all); /* no more slots than pages */
    assert_true(peers_home_bytes(8192, pool, &s) < all / 2 + 4096);
}

/* As one setting too, for URLs, flags and variables, which have no sections; it wins over a section. */
static void replaceable_setting(void **unused)
{
    (void)unused;
    char value[64], many[8 * (SETTINGS_NAMESPACES + 1)] = "";
    settings_init(&s);
    assert_int_equal(set("replaceable", "chat,kv.a", ORIGIN_URL), 0);
    assert_int_equal(set("replaceable", "kv.b", ORIGIN_URL), 0);
    assert_int_equal(settings_namespace(&s, "chat", "replaceable", "no", "f:1", why, sizeof why), 0);
    assert_int_equal(settings_namespace(&s, "kv.c", "replaceable", "yes", "f:2", why, sizeof why), 0);
    assert_int_equal(settings_namespace(&s, "kv.d", "replaceable", "no", "f:3", why, sizeof why), 0);
    assert_int_equal(set("replaceable", "ignored", ORIGIN_FILE), 0);
    assert_true(replaces("chat") && replaces("kv.a") && replaces("kv.b") && replaces("kv.c"));
    assert_false(replaces("kv.d") || replaces("ignored"));
    settings_value(&s, settings_count - 2, value, sizeof value);
    assert_string_equal(value, "chat,kv.a,kv.b,kv.c");
    assert_int_equal(set("replaceable", "a b", ORIGIN_URL), -EINVAL);
    assert_int_equal(set("replaceable", "a,,b", ORIGIN_URL), -EINVAL);
    assert_non_null(strstr(why, "write none, or names"));
    static const char *const switches[] = {"yes", "no", "True", "false", "ON", "off", "chat,yes"};
    for (unsigned i = 0; i < sizeof switches / sizeof *switches; i++) {
        assert_int_equal(set("replaceable", switches[i], ORIGIN_FLAG), -EINVAL);
        assert_non_null(strstr(why, "is no switch"));
    }
    for (unsigned i = 0; i <= SETTINGS_NAMESPACES; i++)
        snprintf(many + strlen(many), sizeof many - strlen(many), "%sn%u", i ? "," : "", i);
    settings_init(&s);
    assert_int_equal(set("replaceable", many, ORIGIN_URL), -EINVAL);
    assert_non_null(strstr(why, "256 namespaces"));
    assert_int_equal(s.n_namespaces, 0);
}

static int finish_with(const char *name, const char *peers, const char *listen)
{
    settings_init(&s);
    assert_int_equal(set("name", name, ORIGIN_FLAG), 0);
    if (set("peers", peers, ORIGIN_FLAG) != 0)
        return -ERANGE;
    if (listen)
        assert_int_equal(set("listen", listen, ORIGIN_FLAG), 0);
    return settings_finish(&s, why, sizeof why);
}

static void peers_are_a_list(void **unused)
{
    (void)unused;
    settings_init(&s);
    assert_int_equal(settings_finish(&s, why, sizeof why), 0);
    assert_false(settings_wants_peers(&s));
    assert_int_equal(s.homes, 1);
    assert_int_equal(finish_with("b", "c=tcp://[::1]:3*5,b=tcp://127.0.0.1:2,a=tcp://localhost:1", NULL), 0);
    assert_true(settings_wants_peers(&s));
    assert_int_equal(s.n_peers, 3);
    assert_string_equal(s.peers[0].name, "a"); /* sorted: a member's number is the same on all nodes */
    assert_string_equal(s.peers[2].address, "tcp://[::1]:3");
    assert_int_equal(s.peers[2].weight, 5);
    assert_string_equal(s.listen, "tcp://127.0.0.1:2"); /* its own entry's */
    assert_int_equal(s.homes, 2);
    assert_int_equal(finish_with("b", "a=tcp://127.0.0.1:1,b", "tcp://127.0.0.1:0"), 0);
    assert_string_equal(s.listen, "tcp://127.0.0.1:0");
    assert_int_equal(finish_with("b", "a=tcp://127.0.0.1:1", NULL), -EINVAL);   /* without itself */
    assert_int_equal(finish_with("b", "a,b=tcp://127.0.0.1:1", NULL), -EINVAL); /* another's address is missing */
    assert_int_equal(finish_with("b", "a=tcp://127.0.0.1:1,b", NULL), -EINVAL); /* listens nowhere */
    assert_int_equal(finish_with("b", "a=tcp://10.0.0.1:1,b=tcp://127.0.0.1:2", NULL), -EINVAL);
    assert_non_null(strstr(why, "peer-trust"));
    static const char *const bad[] = {"a=127.0.0.1:1",
                                      "a=tcp://127.0.0.1",
                                      "a=tcp://127.0.0.1:0",
                                      "a=tcp://0.0.0.0:1",
                                      "a=tcp://[::]:1",
                                      "a=tcp://*:1",
                                      "a=tcp://127.0.0.1:1*0",
                                      "a=tcp://127.0.0.1:1*65536",
                                      "a b=tcp://127.0.0.1:1",
                                      "=tcp://127.0.0.1:1",
                                      "a=tcp://::1:1",
                                      "a=tcp://127.0.0.1:70000",
                                      "a,a",
                                      "",
                                      "a,"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        if (finish_with("a", bad[i], "tcp://127.0.0.1:1") != -ERANGE)
            fail_msg("'%s' was taken", bad[i]);
    }
}

static void refused_as(const char *peers, const char *listen, const char *sentence)
{
    if (finish_with("a", peers, listen) == 0 || !strstr(why, sentence))
        fail_msg("'%s' says '%s'", peers, why);
}

static void peers_are_refused_by_name(void **unused)
{
    char many[8192] = "a";
    (void)unused;
    refused_as("a,b=tcp://0.0.0.0:1", "off", "peer 'b' has the address 'tcp://0.0.0.0:1', which no other host");
    refused_as("a,b=tcp://[::]:1", "off", "which no other host");
    refused_as("a,b=tcp://x", "off", "peer 'b' has the address 'tcp://x': write tcp://HOST:PORT");
    refused_as("a,b=tcp://x\n:1", "off", "peer 'b' has the address 'tcp://x\\x0a:1'");
    refused_as("a,b=tcp://127.0.0.1:1*0", "off", "peer 'b' has the weight '0'");
    refused_as("a,b=tcp://127.0.0.1:1*65536", "off", "peer 'b' has the weight '65536'");
    refused_as("a,b=tcp://127.0.0.1:1*", "off", "peer 'b' has the weight ''");
    refused_as("a,b=tcp://127.0.0.1:1,a=tcp://127.0.0.1:2", "off", "peer 'a' stands in the list twice");
    refused_as("a=tcp://127.0.0.1:1,b=tcp://127.0.0.1:1", NULL,
               "peers 'a' and 'b' have one address, tcp://127.0.0.1:1");
    settings_init(&s);
    assert_int_equal(set("peer-trust", "network", ORIGIN_FLAG), 0);
    assert_int_equal(set("name", "a", ORIGIN_FLAG), 0);
    assert_int_equal(set("peers", "a=tcp://node.example:1,b=tcp://NODE.example:1", ORIGIN_FLAG), 0);
    assert_int_equal(settings_finish(&s, why, sizeof why), -EINVAL);
    assert_non_null(strstr(why, "have one address"));
    s.n_peers = 0;
    assert_int_equal(set("peers", "a=tcp://[2001:db8::1]:1,b=tcp://[2001:0db8:0::1]:1", ORIGIN_FLAG), 0);
    assert_int_equal(settings_finish(&s, why, sizeof why), -EINVAL);
    assert_non_null(strstr(why, "have one address"));
    refused_as("b=tcp://127.0.0.1:1,a", "tcp://127.0.0.1:1", "peers 'a' and 'b' have one address");
    assert_int_equal(finish_with("a", "a=tcp://127.0.0.1:1,b=tcp://127.0.0.1:2,c=tcp://[::1]:1", NULL), 0);
    for (unsigned i = 1; i <= SETTINGS_PEERS; i++)
        snprintf(many + strlen(many), 32, ",n%u=tcp://127.0.0.1:%u", i, i);
    refused_as(many, "off", "peer 'n128' is one too many");
}

static void twice_in_a_url(void **unused)
{
    (void)unused;
    settings_init(&s);
    assert_int_equal(settings_set(&s, "pool", "16MiB", ORIGIN_URL, "u", why, sizeof why), 0);
    assert_int_equal(settings_set(&s, "pool", "16MiB", ORIGIN_URL, "u", why, sizeof why), -EINVAL);
    assert_non_null(strstr(why, "'pool' stands twice"));
    assert_int_equal(settings_set(&s, "class", "20KiB", ORIGIN_URL, "u", why, sizeof why), 0);
    assert_int_equal(settings_set(&s, "class", "40KiB", ORIGIN_URL, "u", why, sizeof why), 0);
    assert_int_equal(s.n_classes, 2);
}

static void peers_in_a_file(void **unused)
{
    (void)unused;
    char value[300];
    settings_init(&s);
    assert_int_equal(settings_peer(&s, "a", "tcp://127.0.0.1:1 7", "f:1", why, sizeof why), 0);
    assert_int_equal(settings_peer(&s, "b", "", "f:2", why, sizeof why), 0);
    assert_int_equal(settings_peer(&s, "c", "tcp://127.0.0.1:3 7 8", "f:3", why, sizeof why), -EINVAL);
    assert_int_equal(settings_peer(&s, "a", "tcp://127.0.0.1:1", "f:4", why, sizeof why), -EINVAL);
    for (unsigned i = 0; i < settings_count; i++) {
        if (strcmp(settings_table[i].name, "peers") == 0) {
            settings_value(&s, i, value, sizeof value);
            assert_string_equal(value, "a=tcp://127.0.0.1:1*7,b");
        }
    }
    for (unsigned i = 2; i < SETTINGS_PEERS; i++) {
        char name[16];
        snprintf(name, sizeof name, "n%u", i);
        assert_int_equal(settings_peer(&s, name, "tcp://127.0.0.1:9", "f:5", why, sizeof why), 0);
    }
    assert_int_equal(settings_peer(&s, "more", "tcp://127.0.0.1:9", "f:6", why, sizeof why), -EINVAL);
    assert_int_equal(set("verify", "1/16", ORIGIN_FLAG), 0);
    assert_int_equal(s.verify, 16);
    assert_int_equal(set("verify", "lease", ORIGIN_FLAG), 0);
    assert_int_equal(s.verify, 0);
    assert_int_equal(set("verify", "1/0", ORIGIN_FLAG), -EINVAL);
    assert_int_equal(set("lease", "31s", ORIGIN_FLAG), -EINVAL);
    assert_int_equal(set("lease", "50ms", ORIGIN_FLAG), -EINVAL);
    assert_int_equal(set("homes", "4", ORIGIN_FLAG), -EINVAL);
    assert_int_equal(set("name", "a b", ORIGIN_FLAG), -EINVAL);
    assert_int_equal(set("peer-trust", "all", ORIGIN_FLAG), -EINVAL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a12_size_units),
        cmocka_unit_test(later_origins_win),
        cmocka_unit_test(classes_are_a_list),
        cmocka_unit_test(bad_values),
        cmocka_unit_test(good_values),
        cmocka_unit_test(finish_resolves),
        cmocka_unit_test(shown_reads_back),
        cmocka_unit_test(defaults_are_as_documented),
        cmocka_unit_test(peers_are_a_list),
        cmocka_unit_test(peers_in_a_file),
        cmocka_unit_test(peers_are_refused_by_name),
        cmocka_unit_test(twice_in_a_url),
        cmocka_unit_test(namespaces),
        cmocka_unit_test(shares),
        cmocka_unit_test(shares_are_shown_as_said),
        cmocka_unit_test(replaceable_setting),
        cmocka_unit_test(home_is_counted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
