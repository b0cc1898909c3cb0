/* settings_value.h: reading and showing the value of one setting. */
#ifndef BERTH_SHELL_SETTINGS_VALUE_H
#define BERTH_SHELL_SETTINGS_VALUE_H

#include "store/shell/settings.h"

enum setting_index { /* order of settings_table */
                     SET_REGION,
                     SET_SOCKET,
                     SET_METRICS,
                     SET_POLICY,
                     SET_POOL,
                     SET_MR_SIZE,
                     SET_INDEX_SIZE,
                     SET_MAX_OBJECTS,
                     SET_HIGH,
                     SET_LOW,
                     SET_DRAFT_QUOTA,
                     SET_PIN_QUOTA,
                     SET_CLASS,
                     SET_LOCK,
                     SET_THREADS,
                     SET_SPIN,
                     SET_MODE,
                     SET_QUARANTINE,
                     SET_LOG_LEVEL,
                     SET_LOG_FORMAT,
                     SETTINGS
};

/* Stores the value into its field; shares of the pool are only checked. 0, -EINVAL (not a value), -ERANGE. */
int value_parse(struct settings *s, unsigned index, const char *text);
/* What is wrong after value_parse returned `error`, and what to write instead. Static storage. */
const char *value_units(unsigned index, int error);
/* Bytes of a checked SIZE|PERCENT of the pool. */
uint64_t value_share(const char *text, uint64_t pool);

#endif
