/* A user of the installed package: puts an object into an embedded node and reads it back. */
#include <berth/berth.h>
#include <stdio.h>
#include <string.h>

static int fail(const char *what)
{
    struct berth_error_info e;
    berth_error(NULL, &e);
    fprintf(stderr, "%s: %s\n", what, e.sentence);
    return 1;
}

int main(void)
{
    struct berth_key key = {.data = "key", .size = 3};
    struct berth_view view;
    struct berth *b;

    if (berth_open(&b, "embedded:?pool=16MiB", NULL) < 0)
        return fail("open");
    if (berth_put(b, key, "payload", 7, NULL) < 0)
        return fail("put");
    if (berth_get(b, key, &view, 0, BERTH_FOREVER) < 0)
        return fail("get");
    int differs = view.size != 7 || memcmp(view.data, "payload", 7) != 0;
    berth_release(b, &view, 1);
    berth_close(b);
    printf("libberth %s: %s\n", berth_version_string(), differs ? "other bytes than were put" : "read back");
    return differs;
}
