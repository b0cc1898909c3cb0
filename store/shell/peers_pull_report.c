/* peers_pull_report.c: what is said of what this node takes from others. */
#include "store/shell/peers_pull.h"

json_t *peers_pull_report(const struct peers *p)
{
    struct pull_status st;
    if (!p || !p->pull || !p->pull->puller)
        return json_null();
    pull_status(p->pull->puller, &st);
    json_t *o = json_object();
    for (unsigned i = 0; i < PULL_COUNTERS; i++)
        json_object_set_new(o, pull_counter_names[i], json_integer((json_int_t)(st.counter[i] & INT64_MAX)));
    return o;
}
