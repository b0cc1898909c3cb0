/* bench_room.c: what a node that -n names has room for. Its objects are somebody's: a case that would push them out is
 * made smaller, or refused. */
#include "tools/bench/bench.h"

#include "tools/cli.h"

#define UNIT (UINT64_C(2) << 20)

static uint64_t less_of(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* Bytes that can be sealed before the node evicts. Of whole units only: a slot that is free serves its own size alone.
 * A quarter stays, for slots larger than their objects and slabs that are not full. */
static uint64_t room_of(const json_t *status, uint64_t *quota)
{
    uint64_t high = (uint64_t)cli_json_int(status, "pool/high_bytes");
    uint64_t taken = (uint64_t)cli_json_int(status, "pool/sealed_bytes");
    uint64_t units = (uint64_t)cli_json_int(status, "slots/free_units") * UNIT;

    *quota = (uint64_t)cli_json_int(status, "settings/draft-quota/bytes");
    return less_of(high > taken ? high - taken : 0, units) / 4 * 3;
}

/* Each object needs a header too, and slabs take theirs whole. */
static uint64_t headers_of(const json_t *status)
{
    uint64_t most = (uint64_t)cli_json_int(status, "slots/headers_max");
    uint64_t used = (uint64_t)cli_json_int(status, "slots/headers_used");

    return most > used ? (most - used) / 4 * 3 : 0;
}

static int too_much(const struct bench *b, uint64_t room, uint64_t need)
{
    char sentence[256], has[24], wants[24];

    cli_bytes(has, room);
    cli_bytes(wants, need);
    snprintf(
        sentence, sizeof(sentence),
        "the node has room for %s before it evicts what others put, and this case needs %s: use fewer --objects or "
        "a smaller --size, leave -n out, or allow it with --may-evict",
        has, wants);
    return cli_fail(BERTH_EFULL, b->which->name, sentence);
}

int bench_fit(struct bench *b)
{
    uint64_t slot = bench_slot_bytes(b->size), quota, room, drafts, fit, headers;
    json_t *status;
    int code = cli_report_of(b->b, BERTH_STATUS, NULL, &status);

    if (code)
        return code;
    room = room_of(status, &quota);
    headers = headers_of(status);
    json_decref(status);
    drafts = b->which->objects ? 0 : less_of(quota ? quota : room, room / 2);
    b->draft_bytes = drafts ? drafts : slot;
    fit = less_of((room - drafts) / slot, headers);
    if (b->may_evict || b->objects <= fit)
        return 0;
    if (b->objects_given || !fit)
        return too_much(b, room, b->objects_given ? b->objects * slot + drafts : 2 * slot);
    b->objects = fit;
    return 0;
}
