/* help.c: help, completion and their JSON, all made from the command table. */
#include <string.h>

#include "tools/cli.h"

static const struct {
    int code;
    const char *meaning;
} exit_codes[] = {
    {CLI_OK, "done"},
    {CLI_FAILED, "failure"},
    {CLI_USAGE, "wrong command line"},
    {CLI_NOT_FOUND, "not found"},
    {CLI_NO_NODE, "node unavailable, this one or one that had to be asked"},
    {CLI_REFUSED, "refused: full, busy, held, read-only, over quota, not permitted"},
    {CLI_TIMED_OUT, "timed out"},
};
#define N_EXIT_CODES (sizeof exit_codes / sizeof *exit_codes)

static void print_options(const struct cli_option *options)
{
    for (const struct cli_option *o = options; o && o->name; o++) {
        char letter[5] = "    ", left[64];
        if (o->letter)
            snprintf(letter, sizeof letter, "-%c, ", o->letter);
        snprintf(left, sizeof left, "%s--%s%s%s", letter, o->name, o->value ? " " : "", o->value ? o->value : "");
        printf("  %-28s %s\n", left, o->doc);
    }
}

static void print_exit_codes(void)
{
    puts("\nExit codes:");
    for (size_t i = 0; i < N_EXIT_CODES; i++)
        printf("  %d  %s\n", exit_codes[i].code, exit_codes[i].meaning);
}

static const char keys_note[] =
    "In keys \\xNN stands for a byte and \\\\ for a backslash, as listings show them; 1 to 480 bytes.";

static bool takes_keys(const struct cli_command *c)
{
    return strstr(c->operands, "KEY") || strstr(c->operands, "PREFIX");
}

static void print_choices(const struct cli_command *c)
{
    const char *name, *doc;
    if (!c->choice)
        return;
    printf("\n%.*s is one of:\n", (int)strcspn(c->operands, "."), c->operands);
    for (unsigned i = 0; c->choice(i, &name, &doc); i++)
        printf("  %-28s %s\n", name, doc);
}

static void print_command(const struct cli_command *c)
{
    printf("berth %s%s%s\n\n%s\n", c->name, *c->operands ? " " : "", c->operands, c->doc);
    if (c->notes)
        printf("\n%s\n", c->notes);
    print_choices(c);
    if (c->options->name) {
        puts("\nOptions:");
        print_options(c->options);
    }
    puts("\nOptions of every command:");
    print_options(common_options);
    if (takes_keys(c))
        printf("\n%s\n", keys_note);
    print_exit_codes();
}

static void print_commands(void)
{
    puts("berth [-n URL] COMMAND ...\n\nCommands:");
    for (const struct cli_command *c = cli_commands; c->name; c++) {
        char left[64];
        snprintf(left, sizeof left, "%s %s", c->name, c->operands);
        printf("  %-26s %s\n", left, c->doc);
    }
    puts("\nOptions, before or behind the command:");
    print_options(common_options);
    print_exit_codes();
}

static json_t *json_options(const struct cli_option *options)
{
    json_t *list = json_array();
    for (const struct cli_option *o = options; o && o->name; o++) {
        json_t *item = json_pack("{s:s, s:s}", "name", o->name, "doc", o->doc);
        if (o->letter)
            json_object_set_new(item, "letter", json_stringn(&o->letter, 1));
        if (o->value)
            json_object_set_new(item, "value", json_string(o->value));
        json_array_append_new(list, item);
    }
    return list;
}

static json_t *json_command(const struct cli_command *c)
{
    json_t *item = json_pack("{s:s, s:s, s:s, s:o}", "name", c->name, "operands", c->operands, "doc", c->doc, "options",
                             json_options(c->options));
    json_t *choices = c->choice ? json_array() : NULL;
    const char *name, *doc;
    for (unsigned i = 0; choices && c->choice(i, &name, &doc); i++)
        json_array_append_new(choices, json_pack("{s:s, s:s}", "name", name, "doc", doc));
    if (choices)
        json_object_set_new(item, "choices", choices);
    if (c->notes)
        json_object_set_new(item, "notes", json_string(c->notes));
    return item;
}

static void json_help(const struct cli_command *command)
{
    json_t *doc = cli_json(), *commands = json_array(), *codes = json_array();
    for (const struct cli_command *c = cli_commands; c->name; c++)
        if (!command || c == command)
            json_array_append_new(commands, json_command(c));
    for (size_t i = 0; i < N_EXIT_CODES; i++)
        json_array_append_new(codes,
                              json_pack("{s:i, s:s}", "code", exit_codes[i].code, "meaning", exit_codes[i].meaning));
    json_object_set_new(doc, "commands", commands);
    json_object_set_new(doc, "options", json_options(common_options));
    json_object_set_new(doc, "keys", json_string(keys_note));
    json_object_set_new(doc, "exit_codes", codes);
    cli_json_print(doc);
}

void cli_help(const struct cli_command *command)
{
    if (cli.json)
        json_help(command);
    else if (command)
        print_command(command);
    else
        print_commands();
}

static void complete_options(const struct cli_option *options)
{
    for (const struct cli_option *o = options; o && o->name; o++)
        printf(" --%s", o->name);
}

static void complete_choices(const struct cli_command *c)
{
    const char *name, *doc;
    for (unsigned i = 0; c->choice && c->choice(i, &name, &doc); i++)
        printf(" %s", name);
}

void cli_completion(void)
{
    puts("_berth() {\n"
         "    local word=${COMP_WORDS[COMP_CWORD]} command= i\n"
         "    for ((i = 1; i < COMP_CWORD; i++)); do\n"
         "        case ${COMP_WORDS[i]} in\n"
         "        -n|-N|-t|--node|--namespace|--timeout) ((i++)) ;;\n"
         "        -*) ;;\n"
         "        *) command=${COMP_WORDS[i]}; break ;;\n"
         "        esac\n"
         "    done\n"
         "    local words=");
    puts("    case $command in");
    for (const struct cli_command *c = cli_commands; c->name; c++) {
        printf("    %s) words='", c->name);
        complete_choices(c);
        complete_options(c->options);
        complete_options(common_options);
        puts("' ;;");
    }
    printf("    '') words='");
    for (const struct cli_command *c = cli_commands; c->name; c++)
        printf(" %s", c->name);
    complete_options(common_options);
    puts("' ;;\n"
         "    esac\n"
         "    COMPREPLY=($(compgen -W \"$words\" -- \"$word\"))\n"
         "    if [[ $word != -* && $command =~ ^(put|get|replay)$ ]]; then\n"
         "        COMPREPLY+=($(compgen -f -- \"$word\"))\n"
         "    fi\n"
         "}\n"
         "complete -F _berth berth");
}
