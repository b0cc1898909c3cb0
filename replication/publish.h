/* publish.h: the owner's side of homes: what has to be told to which member, and what is known to have arrived.
 *
 * The owner tells of each object that it seals, evicts or removes (publish_tell), of members that come and go, of
 * answers and of time; out come commands (publish_command). PROTOCOLS.md rules 28 to 30.
 *
 * Each member of the list gets a stream of batches (publication.h), with at most `window` of them unacknowledged. A
 * stream begins with a listing of everything that the owner has: PUBLISH_LIST asks for it in steps, so that nobody
 * keeps a copy of all keys; one pass over the index serves all members that wait for one, and steps are asked for only
 * while the queues of all of them are at most half full. What is told meanwhile goes into the same queues, behind what
 * was listed before it. After the last step, and once everything up to there was acknowledged, a batch says COMPLETE.
 * Every member of the list gets a COMPLETE, those that are home to none of the keys too: ABSENT rests on all marks.
 *
 * A stream starts over, from a new listing, when the member has another life, when the list changed, when a batch was
 * sent PUBLISH_TRIES times without an answer, and when the member's queue had no room: then the queue is dropped, since
 * homes are soft state. A lost connection alone starts nothing over: what was not acknowledged goes again, with the
 * same numbers, in the order of its batches. A member that leaves in mid-listing waits for the next pass, so that it
 * holds nobody up. A home that is full is listed to again later (full_ns, doubled each time up to an hour).
 *
 * Published (rule 30): what was told is published when all its homes have acknowledged it. For one key that is answered
 * from the number that publish_tell gave, without any memory a key: a home's queue is in order, so that it has
 * everything below the number at its head. A home whose listing is not complete counts as having nothing. After a
 * PUBLISH_TAKE wait for the number of the version told anew; after a PUBLISH_DROP the version will not be published.
 * Of each tombstone every home's acknowledgement is a PUBLISH_KNOWN, from which the owner sees when all have it.
 *
 * The caller keeps to this: events come in the order of commits; a listing shows the index as those events left it;
 * a command is carried out before the next event or command; its pointers are valid until then.
 *
 * Memory: a member at most queue_entries entries of 24 bytes, and one block of about 130 bytes and the key for each
 * told or listed key in any queue; 10 KiB besides. One thread at a time. Part of the deterministic core.
 */
#ifndef BERTH_REPLICATION_PUBLISH_H
#define BERTH_REPLICATION_PUBLISH_H

#include "replication/rendezvous.h"

#define PUBLISH_WINDOW_MAX 8u
#define PUBLISH_QUEUE_MIN 1024u
#define PUBLISH_TRIES 16u
#define PUBLISH_STEP PUBLICATION_ENTRIES /* of a listing */

struct publish;

struct publish_config {
    struct home_life life;  /* this owner's */
    uint32_t queue_entries; /* of a member; a power of two, PUBLISH_QUEUE_MIN .. 2^24 */
    uint32_t window;        /* unacknowledged batches of a member; 1 .. PUBLISH_WINDOW_MAX */
    int64_t resend_ns;      /* without an answer a batch goes again */
    int64_t full_ns;        /* after a home had no room */
    uint64_t settled;       /* revision under which publish_settled was true in the region's last run; 0: none */
    bool held;              /* begin unlisted: see publish_release */
};

/* SEND: member, batch. To the wire; its answer, if any, into publish_answered. May be lost.
 * LIST: pass, start, most. Into publish_listed, now or later, always.
 * TAKE: entry, counter. Where the key still has this version, give it counter + 1 or more and tell it with `again` set:
 *   rule 28's "once", else a clock that is ahead would beat all later puts.
 * DROP: entry, an OBJECT. Something newer stands above for good: where the key still has this version, retire the copy.
 * PAST: entry, an OBJECT, past: what a home knew of the key, for the policy. A hint: it may be lost.
 * KNOWN: member, entry, a TOMBSTONE. This home has it, or what stands above it: it names nothing older any more. */
enum publish_command_kind { PUBLISH_SEND = 1, PUBLISH_LIST, PUBLISH_TAKE, PUBLISH_DROP, PUBLISH_KNOWN, PUBLISH_PAST };

struct publish_command {
    enum publish_command_kind kind;
    uint16_t member;
    bool start;    /* LIST: from the beginning of the index, else from where the last step ended */
    uint32_t most; /* LIST: entries */
    uint64_t pass; /* LIST */
    uint64_t counter;
    uint64_t past; /* PAST */
    struct publication batch;
    struct publication_entry entry;
};

struct publish_stat {
    uint64_t told;       /* publish_tell calls: the greatest number given */
    uint64_t published;  /* told objects and tombstones that all their homes acknowledged the first time */
    uint64_t listed;     /* entries of listings that were queued */
    uint64_t batches;    /* sent, repeated ones included */
    uint64_t repeated;   /* sent again */
    uint64_t superseded; /* answers */
    uint64_t refused;    /* answers of homes that are full */
    uint64_t overflows;  /* queues dropped */
    uint64_t passes;     /* begun */
    uint32_t current;    /* members that have everything, but for what is in their queues */
    uint32_t members;
    uint64_t queued; /* entries in all queues */
};

/* 0, -EINVAL, -ENOMEM. */
int publish_create(struct publish **out, const struct publish_config *config);
void publish_destroy(struct publish *p);

/* A list, the first or another one; r is kept and must outlive its use. Everything starts over; members are down until
 * publish_up. The owner itself is one of them: its shell carries its batches to its own home. `self` is its index. 0,
 * -EINVAL (self is not in it), -ENOMEM (nothing has changed). */
int publish_members(struct publish *p, uint16_t self, const struct rendezvous *r, int64_t now);
void publish_up(struct publish *p, uint16_t member, struct home_life life, int64_t now);
void publish_down(struct publish *p, uint16_t member, int64_t now);

/* Sealed (OBJECT, fresh), evicted (GONE), removed (TOMBSTONE, fresh). Copies the entry. Returns its number, greater
 * than all before, or -EINVAL for an entry that is none. Want of memory is not an error: the homes get a new listing.
 * */
int64_t publish_tell(struct publish *p, const struct publication_entry *entry, int64_t now);

/* An OBJECT that homes have been told of, told again so that they answer whether it is still good (rule 27). Nothing is
 * counted, nothing waits for it. 0, -EINVAL. Want of memory: as above. */
int publish_renew(struct publish *p, const struct publication_entry *entry, int64_t now);

/* A step of a listing: OBJECTs and TOMBSTONEs that the index has, at most PUBLISH_STEP; `fresh` where the index knows
 * that the key was never published. end: there is no more. A step of a pass that was given up is ignored. 0, -EINVAL.
 * */
int publish_listed(struct publish *p, uint64_t pass, const struct publication_entry *entries, uint32_t n, bool end,
                   int64_t now);

/* An answer from a member. 0; -ENOENT: to nothing that is under way (late, repeated); -EINVAL: the peer is at fault. */
int publish_answered(struct publish *p, uint16_t member, const struct publication_answer *answer, int64_t now);

void publish_tick(struct publish *p, int64_t now);
int64_t publish_timer(const struct publish *p); /* when a tick is wanted; INT64_MAX: not at all */

/* The next command, or NULL. O(1) but while a listing runs, where it is O(members). */
const struct publish_command *publish_command(struct publish *p);

/* Another list may give a key other homes. A member that has not heard of this owner's new list still has its mark of
 * the old one, and would tell a reader with the old list that what was published since is ABSENT. So nothing counts
 * as published before every member of the list has acknowledged the beginning of a stream of this revision, which
 * takes the old mark away. Members that were taken out of the list are not waited for: let one be LEAVING in it, or
 * stop it, before. True: every member has; the revision may be kept for the next run's `settled`. */
bool publish_settled(const struct publish *p);

/* Whether what was told under this number, with a key of this place (rendezvous_place), is published. */
bool publish_done(const struct publish *p, uint64_t place, int64_t number);

void publish_stat(const struct publish *p, struct publish_stat *out);
const char *publish_check(const struct publish *p); /* NULL, or an invariant that does not hold */

/* ---- a node that was away (rule 29) ---- */

/* Tombstones are kept for T. An owner that was away for longer may have objects whose removal nobody remembers. */
enum absence { ABSENCE_SHORT, ABSENCE_LONG };

/* away_ns: wall clock since the owner last was in touch with another member; negative, as after a clock was set back:
 * it can't be known, LONG. others: members of the list beside the owner; with none nobody else can have removed. */
enum absence publish_absence(int64_t away_ns, int64_t tombstone_ns, uint32_t others);

/* After a LONG absence the owner is created `held`: no member gets a listing or a COMPLETE, so that homes say
 * LEARNING and name it. Each of its objects is unlisted: the owner gives no lease on it until the homes' answer for its
 * key confirms it. Readers of its own host see its pool as it is: a copy of a removed key is there on every node that
 * has not heard of the removal, and goes when it does. */
enum unlisted { UNLISTED_WAIT, UNLISTED_KEEP, UNLISTED_DROP };

struct home_answer;
/* What becomes of an unlisted object of this version. KEEP: another member has the same version, or, where it is not
 * replaceable, any one that no removal stands above: equal keys mean equal bytes. DROP: a removal or a newer version
 * stands above; or the home knows all other members' keys and has it not; or `last`, time is up. WAIT: ask again.
 * missing: members whose mark the home misses, this owner not counted. */
enum unlisted publish_confirm(const struct home_answer *answer, struct object_version own, bool replaceable,
                              uint16_t self, uint32_t missing, bool last);

/* Every unlisted object was kept or dropped: listings begin. */
void publish_release(struct publish *p, int64_t now);

#endif
