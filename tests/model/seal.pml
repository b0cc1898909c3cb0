/* Put by token, commit, projection, answer, crash and recovery (PROTOCOLS rules 3, 9, 10, 12, 14).
 *
 * Two clients write drafts of one key, seal or abort them, and now and then use a token that they gave back before. The
 * daemon decides, commits (which may fail), projects and answers, each a step of its own; it may die between any two of
 * them. What it knew is gone then; index, headers and lookup stay; clients send what was not answered again.
 *
 * Checked: only whole payloads are sealed, and only by their creator; what is visible or answered as sealed is in the
 * index, also over a crash; a token that was refused sealed nothing; two creators never both win.
 *
 * Broken twins: NOGEN (an abort does not let the generation grow), ANSWERFIRST (answer before commit), PROJECTFIRST
 * (visible before commit), AGAINBLIND (a seal that is sent again is refused because its token is used up).
 */
#define FREE 0
#define WRITING 1
#define READY 2
#define WORD(g, s) ((g) * 4 + (s))
#define STATE(w) ((w) % 4)
#define GEN(w) ((w) / 4)
#define SLOTS 2
#define GENS 8
#define NONE 255

mtype = { nothing, create, seal, give, ok, kept, failed, stale, unknown };

byte word[SLOTS];
byte owner[SLOTS];
bool written[SLOTS];       /* the payload of this use is whole */
byte record = NONE;        /* the index: slot and generation of the key */
byte record_gen;
byte lookup;               /* slot + 1 */
mtype request[2] = nothing; /* a client's ring, one deep */
mtype reply[2] = nothing;
bool again[2];
byte asked_slot[2], asked_gen[2];
byte known_slot[2] = NONE; /* the client's open draft */
byte known_gen[2];
byte flying = NONE;        /* the daemon: client whose seal is being committed */
bool committed[16];        /* ghost: every (slot, generation) that ever was in the index */
byte removes, crashes;
byte done;                 /* ghost: clients that had all their answers */
#define KNOWN(s) (known_slot[owner[s]] == s && known_gen[owner[s]] == GEN(word[s]))
#define TOKEN(s, g) ((s) * GENS + (g))

inline answer(c, what)
{
    d_step { reply[c] = what; request[c] = nothing; again[c] = false }
}

inline ask(c, what, s, g)
{
    d_step { asked_slot[c] = s; asked_gen[c] = g; request[c] = what }
}

proctype client(byte c; byte drafts)
{
    byte old_slot = NONE, old_gen;

    do
    :: d_step { drafts > 0 -> drafts-- };
        ask(c, create, 0, 0);
        atomic { reply[c] != nothing -> reply[c] = nothing };
        if
        :: known_slot[c] == NONE -> goto late
        :: else -> skip
        fi;
        if
        :: d_step { written[known_slot[c]] = true };
            ask(c, seal, known_slot[c], known_gen[c])
        :: ask(c, give, known_slot[c], known_gen[c])
        fi;
        atomic {
            reply[c] != nothing ->
            if
            :: reply[c] == ok -> assert(committed[TOKEN(asked_slot[c], asked_gen[c])])
            :: reply[c] == stale || reply[c] == failed -> assert(!committed[TOKEN(asked_slot[c], asked_gen[c])])
            :: reply[c] == kept || reply[c] == unknown || reply[c] == nothing -> skip
            fi;
            old_slot = asked_slot[c];
            old_gen = asked_gen[c];
            if
            :: reply[c] == failed -> drafts = 0 /* it stays this client's draft: left open */
            :: else -> known_slot[c] = NONE
            fi;
            reply[c] = nothing
        }
late:
        skip
    :: d_step { old_slot != NONE -> asked_slot[c] = old_slot; asked_gen[c] = old_gen;
                old_slot = NONE; request[c] = seal };
        /* a thread that comes late with a token that is used up, while the next draft may lie in its slot */
        atomic { reply[c] != nothing -> reply[c] = nothing }
    :: drafts == 0 -> break
    od;
    done++
}

/* A reader without a lock: what it may see is in the index. */
proctype reader()
{
    byte s;

    if
    :: atomic {
            lookup != 0 && STATE(word[lookup - 1]) == READY ->
            s = lookup - 1;
            assert(committed[TOKEN(s, GEN(word[s]))])
        }
    :: timeout
    fi
}

inline release(s)
{
    word[s] = WORD(GEN(word[s]) + 1, FREE)
}

inline do_create(c)
{
    d_step {
        if
        :: STATE(word[0]) == FREE -> s = 0
        :: STATE(word[0]) != FREE && STATE(word[1]) == FREE -> s = 1
        :: else -> s = NONE
        fi;
        if
        :: s != NONE && GEN(word[s]) < GENS - 2 ->
            word[s] = WORD(GEN(word[s]), WRITING);
            owner[s] = c;
            written[s] = false;
            known_slot[c] = s;
            known_gen[c] = GEN(word[s])
        :: else -> known_slot[c] = NONE
        fi
    };
    answer(c, ok)
}

#define VALID(c) (word[asked_slot[c]] == WORD(asked_gen[c], WRITING) && owner[asked_slot[c]] == c)

inline do_give(c)
{
    d_step {
        if
#ifdef NOGEN
        :: VALID(c) -> word[asked_slot[c]] = WORD(asked_gen[c], FREE)
#else
        :: VALID(c) -> release(asked_slot[c])
#endif
        :: else -> skip
        fi
    };
    answer(c, stale)
}

inline do_seal(c)
{
    if
    :: VALID(c) && record != NONE -> release(asked_slot[c]); answer(c, kept)
    :: VALID(c) && record == NONE ->
        flying = c;
#ifdef ANSWERFIRST
        answer(c, ok);
#endif
#ifdef PROJECTFIRST
        word[asked_slot[c]] = WORD(asked_gen[c], READY);
        lookup = asked_slot[c] + 1;
#endif
        skip
#ifdef AGAINBLIND
    :: !VALID(c) -> answer(c, stale)
#else
    :: !VALID(c) && !again[c] -> answer(c, stale)
    :: !VALID(c) && again[c] && word[asked_slot[c]] == WORD(asked_gen[c], READY) -> answer(c, ok)
    :: !VALID(c) && again[c] && word[asked_slot[c]] != WORD(asked_gen[c], READY) -> answer(c, unknown)
#endif
    fi
}

inline commit()
{
    if
    :: atomic {
            assert(record == NONE);
            assert(written[asked_slot[flying]] && owner[asked_slot[flying]] == flying);
            record = asked_slot[flying];
            record_gen = asked_gen[flying];
            committed[TOKEN(record, record_gen)] = true
        };
        word[asked_slot[flying]] = WORD(asked_gen[flying], READY);
        lookup = asked_slot[flying] + 1;
        answer(flying, ok)
    :: answer(flying, failed)
    fi;
    flying = NONE
}

inline remove()
{
    removes++;
    d_step { s = record; record = NONE };
    lookup = 0;
    release(s)
}

/* Headers are made to fit records; drafts of living clients stay theirs if they know them (RESUME); then lookup. */
inline recover()
{
    s = 0;
    do
    :: s < SLOTS ->
        d_step {
            if
            :: record == s && record_gen == GEN(word[s]) -> word[s] = WORD(record_gen, READY)
            :: (record != s || record_gen != GEN(word[s])) && STATE(word[s]) == READY -> release(s)
            :: (record != s || record_gen != GEN(word[s])) && STATE(word[s]) == WRITING && !KNOWN(s) -> release(s)
            :: else -> skip
            fi;
            s++
        }
    :: else -> break
    od;
    skip;
    d_step {
        if :: record == NONE -> lookup = 0 :: else -> lookup = record + 1 fi;
        again[0] = request[0] != nothing;
        again[1] = request[1] != nothing
    }
}

proctype daemon()
{
    byte s;

    do
    :: {
            do
            :: request[0] == create -> do_create(0)
            :: request[1] == create -> do_create(1)
            :: request[0] == give && flying == NONE -> do_give(0)
            :: request[1] == give && flying == NONE -> do_give(1)
            :: request[0] == seal && flying == NONE -> do_seal(0)
            :: request[1] == seal && flying == NONE -> do_seal(1)
            :: flying != NONE -> commit()
            :: record != NONE && flying == NONE && removes == 0 -> remove()
            od
        } unless { crashes == 1 };
        d_step { crashes = 2; flying = NONE };
        recover()
    od
}

/* Ends the daemon, once, wherever it is. */
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
        run client(0, 2);
        run client(1, 1);
        run reader();
        run crash();
        run daemon()
    };
    timeout -> assert(done == 2) /* nobody waits for an answer that never comes */
}
