/* Group seal: two keys become new at one moment for readers that take no lock (PROTOCOLS rule 13).
 *
 * Members name the leader's slot, every member is projected, the leader's state word flips, old versions retire, the
 * links go. The daemon may die between any two steps; the next one finds the commit and goes on. Readers look keys up
 * one by one, or both with SAME_GROUP: pin both, compare tags, start again on a mixture.
 *
 * Checked: who has read one new member finds the other new and ready at once; who finds an old version retired finds
 * the new one ready at once; SAME_GROUP never returns a mixture.
 *
 * Broken twins: LEADERFIRST (the leader flips before the members are projected), RETIREFIRST (old versions retire
 * before the flip), LINKFIRST (links go before the flip), NOCOMPARE (SAME_GROUP without the comparison).
 */
#define WRITING 1
#define READY 2
#define RETIRED 3
#define OLD(k) (k)
#define NEW(k) (2 + (k))
#define LEADER 2
#define MEMBER 3
#define NONE 255

byte state[4];  /* slots: old of key 0 and 1, new of key 0 (the leader) and 1 */
byte link[4];   /* slot + 1 */
byte lookup[2]; /* slot */
byte tag[4];    /* of the seal that made the slot's object */
byte crashes;

/* One try to get a key: a slot, or NONE: not now. Slots are not used again here: that is pin.pml's matter. */
inline try(wanted, out, gone)
{
    out = lookup[wanted];
    gone = false;
    if
    :: state[out] == READY ->
        l = link[out];
        if
        :: l == 0 -> skip
        :: l != 0 ->
            if
            :: state[l - 1] == READY -> skip
            :: else -> if :: link[out] == 0 -> skip :: else -> out = NONE fi
            fi
        fi
    :: state[out] == RETIRED -> out = NONE; gone = true
    :: state[out] == WRITING -> out = NONE
    fi
}

/* Gets both keys, one after the other, in either order. */
proctype one_by_one()
{
    byte k, l, first = NONE, second = NONE;
    bool retired, must = false;

    if :: k = 0 :: k = 1 fi;
    do
    :: first == NONE ->
        must = retired;
        try(k, first, retired);
        assert(!must || first == NEW(k))
    :: else -> break
    od;
    retired = false;
    do
    :: second == NONE ->
        must = retired || first == NEW(k);
        try(1 - k, second, retired);
        assert(!must || second == NEW(1 - k))
    :: else -> break
    od
}

proctype same_group()
{
    byte l, a, b;
    bool retired;

again:
    try(0, a, retired);
    if :: a == NONE -> goto again :: else -> skip fi;
    try(1, b, retired);
    if :: b == NONE -> goto again :: else -> skip fi;
#ifndef NOCOMPARE
    if :: tag[a] != tag[b] -> goto again :: else -> skip fi;
#endif
    assert(tag[a] == tag[b])
}

inline flip()
{
    state[LEADER] = READY
}

inline retire()
{
    state[OLD(0)] = RETIRED;
    state[OLD(1)] = RETIRED
}

/* Committed before: from here on a crash only delays it. */
inline publish()
{
    link[MEMBER] = LEADER + 1;
    state[MEMBER] = READY;
#ifdef LEADERFIRST
    flip();
#endif
#ifdef RETIREFIRST
    retire();
#endif
    lookup[1] = MEMBER;
    lookup[0] = LEADER;
#ifdef LINKFIRST
    link[MEMBER] = 0;
#endif
    flip();
    retire();
    link[MEMBER] = 0
}

/* A flipped leader says that all were projected: only what comes after the flip is left to do. */
inline go_on()
{
    if
    :: state[LEADER] == READY -> retire(); link[MEMBER] = 0
    :: else -> publish()
    fi
}

proctype daemon()
{
    publish() unless { crashes == 1 };
    if
    :: crashes == 1 -> go_on()
    :: else -> skip
    fi
}

proctype crash()
{
    if
    :: crashes = 1
    :: skip
    fi
}

init
{
    atomic {
        state[OLD(0)] = READY;
        state[OLD(1)] = READY;
        state[LEADER] = WRITING;
        state[MEMBER] = WRITING;
        tag[OLD(0)] = 1;
        tag[OLD(1)] = 1;
        tag[LEADER] = 2;
        tag[MEMBER] = 2;
        lookup[1] = 1;
        run one_by_one();
        run same_group();
        run crash();
        run daemon()
    }
}
