/* Pin against retire (PROTOCOLS rules 1 to 4).
 *
 * Two threads of one client read two keys through the shared lookup while the daemon puts, replaces, evicts, aborts and
 * uses slots again. A lookup entry is a slot number without a generation: what it says is a hint. The reader takes a
 * pin entry by compare-and-swap from 0, loads the state word, and compares the key in the header under the pin; from
 * there on it trusts the header. The pin table grows by a segment that counts only once the daemon knows it.
 *
 * Every step is sequentially consistent, as the code's exchange, loads and fence are; what weaker orders would do is
 * the matter of the stress tests.
 *
 * Broken twins: SHARED (two threads share an entry), MOVE (a validated pin moves to another entry), GROW (a segment is
 * used before the daemon knows it), NORECHECK (the state is loaded before the pin only), NOSCAN (freed without a scan).
 */
#define FREE 0
#define WRITING 1
#define READY 2
#define RETIRED 3
#define WORD(g, s) ((g) * 4 + (s))
#define STATE(w) ((w) % 4)
#define GEN(w) ((w) / 4)

#define SLOTS 2
#define ENTRIES 2 /* the second lies in the segment that comes later */
#define NONE 255

byte word[SLOTS];     /* {generation, state}: one atomic word */
byte header_key[SLOTS];
byte payload[SLOTS];  /* the key whose bytes lie there */
byte lookup[3];       /* by key: slot + 1, 0 absent */
byte entry[ENTRIES];  /* slot + 1, 0 none */
byte known = 1;       /* entries that the daemon scans */
#ifdef GROW
byte usable = ENTRIES;
#else
byte usable = 1;      /* entries that readers use: raised when the daemon has acknowledged */
#endif

inline use(s, w, k)
{
    d_step {
        assert(GEN(word[s]) == GEN(w));
        assert(STATE(word[s]) == READY || STATE(word[s]) == RETIRED);
        assert(header_key[s] == k && payload[s] == k)
    }
}

proctype reader(byte rounds)
{
    byte k, s, e, w, moved;

    do
    :: rounds == 0 -> break
    :: d_step { rounds > 0 -> rounds--; moved = NONE };
        if
        :: atomic { k = 1; s = lookup[1] }
        :: atomic { k = 2; s = lookup[2] }
        fi;
        if :: s == 0 -> goto next :: else -> s-- fi;
#ifdef NORECHECK
        w = word[s];
        if :: STATE(w) != READY -> goto next :: else fi;
#endif
#ifdef SHARED
        e = 0;
        if :: entry[0] != 0 -> goto next :: else fi;
        entry[0] = s + 1;
#else
        if
        :: atomic { entry[0] == 0 -> entry[0] = s + 1; e = 0 }
        :: atomic { usable == ENTRIES && entry[1] == 0 -> entry[1] = s + 1; e = 1 }
        fi;
#endif
#ifndef NORECHECK
        w = word[s];
#endif
        if :: STATE(w) != READY -> goto release :: else fi;
        if :: header_key[s] != k -> goto release :: else fi;
        use(s, w, k);
#ifdef MOVE
        if
        :: atomic { e != 0 && entry[0] == 0 -> entry[0] = s + 1; moved = 0 }
        :: skip
        fi;
        if :: moved != NONE -> entry[e] = 0; e = moved :: else fi;
#endif
        use(s, w, k);
release:
        entry[e] = 0;
next:
        skip;
        d_step { k = 0; s = 0; e = 0; w = 0 } /* forgotten, so that equal states are one */
    od
}

/* The segment is acknowledged by the daemon at any time, in the middle of a scan too: what is acknowledged after a
 * retire's fence can hold no validated pin of the retired slot. */
proctype grower()
{
#ifndef GROW
    known = ENTRIES;
    usable = ENTRIES
#else
    skip
#endif
}

inline scan_and_free(s)
{
#ifndef NOSCAN
    d_step { limit = known; i = 0; found = false };
    do
    :: i < limit -> d_step { found = found || entry[i] == s + 1; i++ }
    :: else -> break
    od;
#endif
    if
    :: !found -> word[s] = WORD(GEN(word[s]) + 1, FREE)
    :: else -> skip /* on the retired list: scanned again later */
    fi;
    d_step { i = 0; limit = 0; found = false }
}

/* Fills a free slot, then publishes it under k, or gives it back. */
inline put(k)
{
    if
    :: STATE(word[0]) == FREE -> s = 0
    :: STATE(word[1]) == FREE -> s = 1
    :: STATE(word[0]) != FREE && STATE(word[1]) != FREE -> s = NONE
    fi;
    if
    :: s != NONE ->
        word[s] = WORD(GEN(word[s]), WRITING);
        d_step { header_key[s] = k; payload[s] = k }; /* while WRITING nobody may read either */
        if
        :: word[s] = WORD(GEN(word[s]) + 1, FREE) /* aborted */
        :: word[s] = WORD(GEN(word[s]), READY);
           old = lookup[k];
           lookup[k] = s + 1;
           if
           :: old != 0 -> old--; word[old] = WORD(GEN(word[old]), RETIRED); scan_and_free(old)
           :: else -> skip
           fi
        fi
    :: else -> skip
    fi
}

inline evict(k)
{
    if
    :: lookup[k] != 0 ->
        old = lookup[k] - 1;
        lookup[k] = 0;
        word[old] = WORD(GEN(word[old]), RETIRED);
        scan_and_free(old)
    :: else -> skip
    fi
}

proctype daemon()
{
    byte s, old, i, limit, turns = 0;
    bool found = false;

    do
    :: turns < 3 ->
        turns++;
        if
        :: put(1)
        :: put(2)
        :: evict(1)
        :: STATE(word[0]) == RETIRED -> scan_and_free(0)
        :: STATE(word[1]) == RETIRED -> scan_and_free(1)
        fi;
        d_step { s = 0; old = 0 }
    :: else -> break
    od
}

init
{
    atomic {
        word[0] = WORD(0, READY);
        header_key[0] = 1;
        payload[0] = 1;
        lookup[1] = 1;
        run reader(2);
        run reader(1);
        run grower();
        run daemon()
    }
}
