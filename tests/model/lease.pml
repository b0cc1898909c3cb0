/* Leases without synchronised clocks (PROTOCOLS rules 19 to 23): one slot, one reader on another host.
 *
 * The reader takes t0 before it asks, reads in two pieces at any time it likes (a READ that waits in the owner's
 * pipeline, or is executed again, is a late piece), renews while it reads, and accepts by its clock after the last
 * piece. The owner keeps the slot until s + ttl + margin on its own clock, and over TCP while something is served; it
 * retires, frees and uses the slot again, resets connections, and dies: the next one knows no leases, and frees nothing
 * before the horizon that was committed ahead of the answers. The reader's clock may lose DRIFT ticks against the
 * owner's.
 *
 * A paused reader's clock stands still: over TCP the hold until DONE covers that, as long as the connection stands
 * (nothing covers a reader that is paused while its owner resets or dies; over verbs nothing covers it but a checksum).
 *
 * Checked: who accepts has read both pieces of the object that it leased.
 *
 * Broken twins: NOMARGIN (the owner's clock decides without a margin), EARLYCHECK (the clock is read before the last
 * piece), NOHORIZON (a node that starts frees at once), SERVEFREED (freed at the lease's end while bytes are in the
 * socket), T0LATE (the deadline counts from the answer), RENEWEARLY (the deadline moves before the answer to a renewal),
 * NOLEASE (a retired slot is freed under a lease).
 */
#define READY 1
#define RETIRED 2
#define TTL 2
#define DRIFT 1
#ifdef NOMARGIN
#define MARGIN 0
#else
#define MARGIN DRIFT
#endif
#define TICKS 6
#define JUNK 99

mtype = { LEASE, RENEW, RELEASE, READ, DONE };
chan ask = [2] of { mtype, byte };
chan answer = [1] of { byte };

byte state = READY;
byte gen = 1;
byte mem = 1; /* payload: the generation that it was written for */
byte end;     /* owner's clock */
byte horizon; /* in the index */
byte closed;  /* nothing is freed before */
byte connection = 1;
bool leased, serving, tcp, paused, died;
byte owners, readers; /* clocks */

proctype time()
{
    byte lost;

    do
    :: owners == TICKS -> break
    :: owners < TICKS -> atomic { owners++; if :: !paused -> readers++ :: else fi }
    :: owners < TICKS && lost < DRIFT -> atomic { owners++; lost++ }
    od
}

inline keep()
{
    if :: owners + TTL + MARGIN > end -> end = owners + TTL + MARGIN :: else fi;
    if :: end > horizon && !died -> horizon = end :: else fi /* committed, then answered */
}

#ifdef SERVEFREED
#define SERVED false
#else
#define SERVED serving
#endif
#ifdef NOLEASE
#define HELD false
#else
#define HELD (leased && owners < end)
#endif

proctype owner()
{
    byte c, extra;

    do
    :: atomic { ask?LEASE(c) -> /* an answer is late by the time it lies in the channel */
        if
        :: c == connection && state == READY -> leased = true; keep(); answer!gen
        :: c == connection && state != READY -> answer!0
        :: else
        fi;
        c = 0 }
    :: atomic { ask?RENEW(c) ->
        if
        :: c == connection && leased && owners < end && (state == READY || extra == 0) ->
            extra = extra + (state == RETIRED);
            keep();
            answer!1
        :: c == connection && !(leased && owners < end && (state == READY || extra == 0)) -> answer!0
        :: else
        fi;
        c = 0 }
    :: atomic { ask?READ(c) ->
        if
        :: c == connection && leased && owners < end -> serving = true; answer!1
        :: c == connection && !(leased && owners < end) -> answer!0
        :: else
        fi;
        c = 0 }
    :: atomic { ask?RELEASE(c) -> if :: c == connection && !serving -> leased = false; end = 0 :: else fi; c = 0 }
    :: atomic { ask?DONE(c) -> if :: c == connection -> serving = false :: else fi; c = 0 }
    :: atomic { state == READY && gen == 1 -> state = RETIRED }
    :: atomic { state == RETIRED && !HELD && !SERVED && owners >= closed -> gen++; leased = false; end = 0 };
        mem = JUNK;
        atomic { mem = gen; extra = 0; state = READY }
    :: atomic { tcp && serving && !paused -> /* reset: what is in the socket may still be read */
        serving = false;
        connection++;
        do :: ask?_, _ :: answer?_ :: empty(ask) && empty(answer) -> break od }
    :: atomic { !died && !paused -> /* killed, and started again */
        died = true;
        leased = false;
        serving = false;
        end = 0;
        connection++;
#ifndef NOHORIZON
        closed = horizon;
#endif
        horizon = 0; /* forgotten, so that equal states are one: nobody dies twice here */
        do :: ask?_, _ :: answer?_ :: empty(ask) && empty(answer) -> break od }
    od
}

/* 0: refused, or the connection is gone. */
inline call(what, got)
{
    got = 0;
    if
    :: connection != c -> skip
    :: ask!what(c);
        if
        :: answer?got
        :: connection != c -> skip
        fi
    fi
}

proctype reader()
{
    byte c, g, ok, t0, d, first, second, now, rounds = 1, reads, renewals;

    do
    :: rounds == 0 -> break
    :: rounds > 0 ->
        atomic { rounds--; reads = 2; renewals = 1; c = connection; t0 = readers };
        call(LEASE, g);
        if :: g == 0 -> goto next :: else fi;
#ifdef T0LATE
        t0 = readers;
#endif
        d = t0 + TTL;
again:
        if :: readers >= d -> goto back :: else fi;
        if
        :: tcp -> call(READ, ok); if :: ok == 0 -> goto next :: else fi
        :: else
        fi;
        first = mem;
        if
        :: renewals > 0 ->
            renewals--;
            t0 = readers;
#ifdef RENEWEARLY
            d = t0 + TTL;
#endif
            call(RENEW, ok);
            if :: ok != 0 -> d = t0 + TTL :: else fi;
            d_step { ok = 0; t0 = 0 }
        :: skip
        fi;
#ifdef EARLYCHECK
        now = readers;
        second = mem;
#else
        second = mem;
        now = readers;
#endif
        if
        :: now < d -> assert(first == g && second == g)
        :: else -> skip /* STALE */
        fi;
        if :: tcp && connection == c -> ask!DONE(c) :: else fi;
        reads--;
        d_step { first = 0; second = 0; now = 0; ok = 0 };
        if :: reads > 0 -> goto again :: skip fi;
back:
        if :: connection == c -> ask!RELEASE(c) :: skip fi;
next:
        skip;
        d_step { g = 0; ok = 0; t0 = 0; d = 0; first = 0; second = 0; now = 0 }
    od
}

init
{
    atomic {
        if :: tcp = true; paused = true :: tcp = true :: skip fi;
        run time();
        run owner();
        run reader()
    }
}
