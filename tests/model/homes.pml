/* Publication to homes and the three answers (PROTOCOLS rules 30, 31).
 *
 * One key, k = 1: under list r its home is member r; an owner that has the key, two homes, a reader. Everybody learns the
 * second list at a time of its own; one of them, a home or the owner, restarts. The owner keeps its object over a
 * restart, a home forgets. Batches and answers may be lost, sent again, and arrive late: after their home or their owner
 * was started again, and after the next stream began.
 *
 * Checked: once the object is published, no home says ABSENT to any reader, where a location of an earlier life of the
 * owner counts for nothing after the HELLO of the next. And whenever nothing is left to do, all homes are current.
 *
 * Broken twins: KEEPMARK (a HELLO of another life leaves the mark), OLDINC (a home takes what is meant for its earlier
 * life), STARTKEEPS (a new stream leaves the mark), READERREV (the reader's list is not compared), NOMARK (ABSENT
 * without marks), OLDLIST (published without waiting until all have heard of the new list).
 */
mtype = { begin, object, complete };

#define HOME(r) (r)

byte cluster;                  /* the list that the directory holds */
byte rev_o, rev_h[2];          /* the list that each has learnt */
byte inc_o, inc_h[2];          /* incarnations */

/* at a home */
bool known[2];                 /* a HELLO of the owner came */
byte known_inc[2];
byte stream_h[2], next_h[2];   /* the owner's stream; 0: none */
bool has[2];                   /* a location; of the life known_inc */
byte has_inc[2];
bool mark[2];
byte mark_rev[2];

/* at the owner */
byte seen[2] = 255;            /* the home's incarnation; 255: not connected */
byte stream_o[2], last[2];     /* 0: waits for a stream */
byte seq_o[2];                 /* of the batch that is under way or comes next */
mtype under[2];                /* what is under way; 0: nothing */
bool heard[2], told[2], current[2];
bool put, published;

/* One batch a home, sent again at will and lost at will: {what, stream, seq, list, to, from}. */
chan batch0 = [1] of { mtype, byte, byte, byte, byte, byte };
chan batch1 = [1] of { mtype, byte, byte, byte, byte, byte };

inline forget(h)
{
    stream_o[h] = 0; seq_o[h] = 0; under[h] = 0; told[h] = false; current[h] = false
}

inline note()
{
#ifdef OLDLIST
    published = published || (put && told[HOME(rev_o)] && current[HOME(rev_o)])
#else
    published = published || (put && told[HOME(rev_o)] && current[HOME(rev_o)] && heard[0] && heard[1])
#endif
}

/* A connection: each learns the other's life. */
inline hello(h)
{
    d_step {
        if
        :: seen[h] != inc_h[h] -> forget(h)
        :: else -> skip
        fi;
        seen[h] = inc_h[h];
        if
        :: !known[h] || known_inc[h] != inc_o ->
            stream_h[h] = 0; next_h[h] = 0;
#ifndef KEEPMARK
            mark[h] = false;
#endif
            known[h] = true; known_inc[h] = inc_o
        :: else -> skip
        fi
    }
}

inline choose(h)
{
    if
    :: under[h] == 0 && stream_o[h] == 0 -> last[h]++; stream_o[h] = last[h]; under[h] = begin
    :: under[h] == 0 && stream_o[h] != 0 && put && h == HOME(rev_o) && !told[h] -> under[h] = object
    :: under[h] == 0 && stream_o[h] != 0 && !(put && h == HOME(rev_o) && !told[h]) && !current[h] -> under[h] = complete
    :: else -> skip
    fi
}

inline acknowledged(h)
{
    if
    :: from == inc_o && s == stream_o[h] && q == seq_o[h] && under[h] != 0 ->
        if
        :: under[h] == begin -> heard[h] = true
        :: under[h] == object -> told[h] = true
        :: under[h] == complete -> current[h] = true
        fi;
        under[h] = 0;
        seq_o[h]++;
        note()
    :: else -> skip
    fi
}

#define BUSY(h) (seen[h] != 255 && (under[h] != 0 || stream_o[h] == 0 || (put && h == HOME(rev_o) && !told[h]) || !current[h]))
#define APART(h) (seen[h] != inc_h[h] || !known[h] || known_inc[h] != inc_o)

proctype owner()
{
end:
    do
    :: d_step { rev_o < cluster -> rev_o = cluster; forget(0); forget(1); heard[0] = false; heard[1] = false }
    :: d_step { !put -> put = true }
    :: APART(0) -> hello(0)
    :: APART(1) -> hello(1)
    :: d_step { BUSY(0) && empty(batch0) -> choose(0);
                batch0!under[0], stream_o[0], seq_o[0], rev_o, seen[0], inc_o }
    :: d_step { BUSY(1) && empty(batch1) -> choose(1);
                batch1!under[1], stream_o[1], seq_o[1], rev_o, seen[1], inc_o }
    od
}

inline apply(h, what, list, from)
{
    if
    :: what == begin ->
#ifndef STARTKEEPS
        mark[h] = false;
#endif
        skip
    :: what == object -> has[h] = true; has_inc[h] = from
    :: what == complete -> mark[h] = true; mark_rev[h] = list
    fi
}

#ifdef OLDINC
#define FOR_ME(h, to, from) (known[h] && known_inc[h] == from)
#else
#define FOR_ME(h, to, from) (known[h] && known_inc[h] == from && inc_h[h] == to)
#endif
#define NEWER(h, s) (stream_h[h] < s)
#ifdef OLDINC
#define IN_TURN(h, s, q) true
#else
#define IN_TURN(h, s, q) (stream_h[h] == s && q == next_h[h])
#endif

/* Takes a batch; its answer is heard or lost. */
inline take(h, batch, answered)
{
    d_step {
        batch?what, s, q, list, to, from;
        good = false;
        if
        :: FOR_ME(h, to, from) && NEWER(h, s) && q == 0 -> stream_h[h] = s; next_h[h] = 0
        :: else -> skip
        fi;
        if
        :: FOR_ME(h, to, from) && IN_TURN(h, s, q) -> apply(h, what, list, from); next_h[h] = q + 1; good = true
        :: FOR_ME(h, to, from) && !IN_TURN(h, s, q) && stream_h[h] == s && q < next_h[h] -> good = true
        :: else -> skip
        fi;
        if
        :: good && answered -> acknowledged(h)
        :: else -> skip
        fi;
        what = 0; s = 0; q = 0; list = 0; to = 0; from = 0; good = false
    }
}

proctype home(byte h)
{
    mtype what;
    byte s, q, list, to, from;
    bool good;

end:
    do
    :: rev_h[h] < cluster -> rev_h[h] = cluster
    :: h == 0 && nempty(batch0) -> take(0, batch0, true)
    :: h == 0 && nempty(batch0) -> take(0, batch0, false)
    :: h == 0 && nempty(batch0) -> batch0?_, _, _, _, _, _
    :: h == 1 && nempty(batch1) -> take(1, batch1, true)
    :: h == 1 && nempty(batch1) -> take(1, batch1, false)
    :: h == 1 && nempty(batch1) -> batch1?_, _, _, _, _, _
    od
}

/* What else happens, each at most once. A member that starts again knows nobody's life, and its home nothing. */
proctype changes()
{
    cluster = 1
}

inline forget_all(h)
{
    d_step {
        inc_h[h]++;
        known[h] = false; stream_h[h] = 0; next_h[h] = 0;
        has[h] = false; mark[h] = false
    }
}

inline owner_again()
{
    d_step {
        inc_o++;
        forget(0); forget(1);
        seen[0] = 255; seen[1] = 255;
        heard[0] = false; heard[1] = false;
        last[0] = 0; last[1] = 0
    }
}

proctype restart()
{
    if
    :: forget_all(0)
    :: forget_all(1)
    :: owner_again()
    fi
}

#ifdef NOMARK
#define SURE(h, r) true
#else
#ifdef READERREV
#define SURE(h, r) (mark[h] && mark_rev[h] == rev_h[h])
#else
#define SURE(h, r) (mark[h] && mark_rev[h] == rev_h[h] && rev_h[h] == r)
#endif
#endif
#define FINDS(h) (has[h] && known[h] && has_inc[h] == known_inc[h])
#define WRONG(r) (published && r <= cluster && !FINDS(HOME(r)) && SURE(HOME(r), r))

/* Any reader, at any moment, with either list that it may have. */
proctype reader()
{
    atomic { WRONG(0) || WRONG(1) -> assert(false) }
}

init
{
    atomic {
        run owner();
        run home(0);
        run home(1);
        run changes();
        run restart();
        run reader()
    };
    timeout -> assert(published && current[0] && current[1])
}
