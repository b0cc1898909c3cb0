/* A removal and a copy that another member still has (PROTOCOLS rule 29).
 *
 * One key, two homes. R had the object and removes it; M has a copy. R's tombstone is in its index. When both homes
 * have heard of it in one run of R it is kept for T more, of which R is up for all; the homes' own memory ends with it.
 * T is long: in it R tells a home that has started again, and M tells each home again of what it has. If M was down for
 * T it asks before it tells. A home that remembers the removal has the copy dropped. Anybody may start again, twice.
 * What is published arrives: that is homes.pml's.
 *
 * Checked: when nothing is left to do, and the removal has returned, no home names the copy, and M has it no more.
 *
 * Broken twins: NOTOMB (the tombstone is in memory), TWORUNS (what homes heard in an earlier run of R counts), NORENEW
 * (who is up tells once), NOCONFIRM (who was away for long tells at once), NOTED (that it was away for long is
 * forgotten when it starts, and not when it has asked).
 */
bool removed;       /* and the caller was told */
bool tomb;          /* R's index */
bool heard[2];      /* R's memory: this home, in its present run, has it */
bool copy = true;   /* M's index */
bool told[2] = true; /* M's memory: nothing new since it told this home */
bool held;          /* M asks first */
bool lengthy;       /* M's index: it was down for T, and what it has is not confirmed since */
bool r_up = true, m_up = true;
bool floor[2];      /* at a home: the removal */
bool loc[2] = true; /* at a home: M has the key */
byte restarts[4];

#define MORE(i) (restarts[i] < 2)

inline tell(h)
{
    told[h] = true;
    if
    :: floor[h] -> copy = false
    :: else -> loc[h] = true
    fi
}

proctype remover()
{
end:
    do
    :: d_step { r_up && !removed -> tomb = true; removed = true }
    :: d_step { r_up && tomb && !heard[0] -> heard[0] = true; floor[0] = true; loc[0] = false;
#ifndef NORENEW
                told[0] = false
#endif
              }
    :: d_step { r_up && tomb && !heard[1] -> heard[1] = true; floor[1] = true; loc[1] = false;
#ifndef NORENEW
                told[1] = false
#endif
              }
    :: d_step { r_up && MORE(0) -> restarts[0]++; r_up = false;
#ifndef TWORUNS
                heard[0] = false; heard[1] = false;
#endif
#ifdef NOTOMB
                tomb = false
#endif
              }
    :: !r_up -> r_up = true
    od
}

#ifdef TWORUNS
#define ENDS (tomb && heard[0] && heard[1])
#else
#define ENDS (tomb && r_up && heard[0] && heard[1])
#endif
#ifdef NORENEW
#define HAS_TOLD true
#else
#define HAS_TOLD (!copy || (told[0] && told[1]))
#endif

/* T passes, and the homes forget as R does. */
proctype time()
{
end:
    do
    :: d_step { ENDS && m_up && !held && HAS_TOLD -> tomb = false; floor[0] = false; floor[1] = false }
    :: d_step { ENDS && !m_up -> tomb = false; floor[0] = false; floor[1] = false; lengthy = true }
    od
}

proctype member()
{
end:
    do
    :: d_step { m_up && !held && copy && !told[0] -> tell(0) }
    :: d_step { m_up && !held && copy && !told[1] -> tell(1) }
    :: d_step { m_up && !copy && (loc[0] || loc[1]) -> loc[0] = false; loc[1] = false }
    :: d_step { m_up && held -> held = false; lengthy = false; if :: removed -> copy = false :: else -> skip fi }
    :: d_step { m_up && MORE(1) -> restarts[1]++; m_up = false }
    :: d_step { !m_up -> m_up = true; told[0] = false; told[1] = false;
#ifndef NOCONFIRM
                held = lengthy
#endif
#ifdef NOTED
                ; lengthy = false
#endif
              }
    od
}

proctype home(byte h)
{
end:
    do
    :: d_step { MORE(2 + h) -> restarts[2 + h]++; floor[h] = false; loc[h] = false; told[h] = false;
#ifdef TWORUNS
                heard[h] = heard[h] && !r_up /* nobody was there to see it */
#else
                heard[h] = false
#endif
              }
    od
}

init
{
    atomic { run remover(); run time(); run member(); run home(0); run home(1) };
    timeout -> assert(!removed || (!loc[0] && !loc[1] && !copy))
}
