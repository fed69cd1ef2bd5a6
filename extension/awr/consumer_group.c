/*-------------------------------------------------------------------------
 *
 * consumer_group.c
 *	  The consumer group of each session.
 *
 * A session belongs to the group that it sets (cellar.consumer_group, also by ALTER
 * ROLE or ALTER DATABASE), else to that of the first mapping whose pattern matches
 * its application name (cellar.consumer_group_mappings), else to OTHER_GROUPS.
 *
 * Each process publishes its setting in the slot of its PGPROC, so that others can
 * read the group of a process.  A slot is written by its process only, without a
 * lock; a counter of changes that is odd during a change lets a reader recognize a
 * torn copy.  The slot contains the process identifier: a process that has not set
 * the group publishes nothing, and has the value of the configuration file, which
 * the postmaster publishes in a further slot.
 *
 * Session samples contain the number of a group.  The names of the groups of all
 * samples in the ring are in a table.  When the table is full, the sampler removes
 * the names to which no sample refers any more, and uses their numbers again.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <ctype.h>

#include "fmgr.h"
#include "miscadmin.h"
#include "port/atomics.h"
#include "storage/proc.h"
#include "storage/procarray.h"
#include "storage/shmem.h"
#include "utils/builtins.h"
#include "utils/guc.h"

#include "cellar/awr.h"
#include "cellar/compat.h"
#include "cellar/statistics.h"

PG_FUNCTION_INFO_V1(cellar_get_consumer_group);

/* Attempts to read a slot that changes meanwhile. */
#define READ_ATTEMPTS	100

#define DEFAULT_GROUP	"OTHER_GROUPS"

/* Groups that session samples distinguish.  The last one stands for all further ones. */
#define GROUPS_MAX		1000
#define FURTHER_GROUPS	"(other)"

typedef struct GroupSlot
{
	uint32		changes;		/* odd during a change */
	int32		pid;			/* 0 if never set */
	char		group[NAMEDATALEN]; /* empty: the mappings decide */
} GroupSlot;

typedef struct ConsumerGroups
{
	int			name_count;		/* without the last one; only the sampler adds
								 * and removes names */
	char		names[GROUPS_MAX][NAMEDATALEN]; /* empty: not in use */
	GroupSlot	configured;		/* the postmaster's */
	GroupSlot	slots[FLEXIBLE_ARRAY_MEMBER];	/* by process number */
} ConsumerGroups;

typedef struct GroupMapping
{
	char		pattern[NAMEDATALEN];	/* of application names; * matches any
										 * characters */
	char		group[NAMEDATALEN];
} GroupMapping;

typedef struct GroupMappings
{
	int			count;
	GroupMapping mappings[FLEXIBLE_ARRAY_MEMBER];
} GroupMappings;

char	   *cellar_consumer_group = NULL;
char	   *cellar_consumer_group_mappings = NULL;

static const GroupMappings *mappings = NULL;
static ConsumerGroups *groups = NULL;

/* ---- the slots ---- */

static void
write_slot(GroupSlot *slot, int pid, const char *group)
{
	volatile GroupSlot *mine = slot;

	mine->changes++;
	pg_write_barrier();
	mine->pid = pid;
	strlcpy((char *) mine->group, group != NULL ? group : "", NAMEDATALEN);
	pg_write_barrier();
	mine->changes++;
}

Size
cellar_consumer_groups_bytes(void)
{
	return add_size(offsetof(ConsumerGroups, slots), mul_size(sizeof(GroupSlot), cellar_session_slots()));
}

void
cellar_consumer_groups_init(void)
{
	bool		found;

	groups = ShmemInitStruct("cellar consumer groups", cellar_consumer_groups_bytes(), &found);
	if (!found)
	{
		memset(groups, 0, cellar_consumer_groups_bytes());
		write_slot(&groups->configured, 0, cellar_consumer_group);
		strlcpy(groups->names[GROUPS_MAX - 1], FURTHER_GROUPS, NAMEDATALEN);
	}
}

/* Reads the setting that a process has published.  Returns false if it has published none. */
static bool
read_slot(const GroupSlot *slot, int pid, char *group)
{
	const volatile GroupSlot *theirs = slot;

	for (int i = 0; i < READ_ATTEMPTS; i++)
	{
		uint32		before = theirs->changes;
		int32		owner;

		pg_read_barrier();
		owner = theirs->pid;
		memcpy(group, (const char *) theirs->group, NAMEDATALEN);
		pg_read_barrier();
		if (before == theirs->changes && before % 2 == 0)
			return owner == pid;
	}
	return false;
}

/* ---- groups ---- */

static bool
matches(const char *pattern, const char *name)
{
	const char *star = NULL;	/* behind the last * */
	const char *retry = NULL;	/* where its match ends */

	while (*name != '\0')
	{
		if (*pattern == '*')
		{
			star = ++pattern;
			retry = name;
		}
		else if (*pattern == *name)
		{
			pattern++;
			name++;
		}
		else if (star != NULL)
		{
			pattern = star;
			name = ++retry;
		}
		else
			return false;
	}
	while (*pattern == '*')
		pattern++;
	return *pattern == '\0';
}

/*
 * Fills in the consumer group of a process, whose process number is "slot".  "group"
 * has NAMEDATALEN bytes.
 */
void
cellar_read_consumer_group(int slot, int pid, const char *application, char *group)
{
	group[0] = '\0';
	if (groups != NULL && !read_slot(&groups->slots[slot], pid, group) && !read_slot(&groups->configured, 0, group))
		group[0] = '\0';
	for (int i = 0; group[0] == '\0' && mappings != NULL && i < mappings->count; i++)
	{
		if (matches(mappings->mappings[i].pattern, application))
			strlcpy(group, mappings->mappings[i].group, NAMEDATALEN);
	}
	if (group[0] == '\0')
		strlcpy(group, DEFAULT_GROUP, NAMEDATALEN);
}

/* Fills in the consumer group of this process.  A parallel worker belongs to the group of its leader. */
void
cellar_own_consumer_group(char *group)
{
	PGPROC	   *session = MyProc->lockGroupLeader != NULL ? MyProc->lockGroupLeader : MyProc;

	cellar_read_consumer_group(CellarProcNumber(session), session->pid, application_name, group);
}

/* Removes the names to which no sample refers.  Returns the index of one of them, or -1. */
static int
remove_unused_names(void)
{
	bool		used[GROUPS_MAX + 1] = {false};
	int			unused = -1;

	if (!cellar_find_sampled_groups(used))
		return -1;
	for (int i = 0; i < groups->name_count; i++)
	{
		if (!used[i + 1])
		{
			groups->names[i][0] = '\0';
			unused = i;
		}
	}
	return unused;
}

/* Returns the number of a group, which is above 0.  Called by the sampler. */
uint16
cellar_consumer_group_number(const char *group)
{
	int			unused = -1;

	for (int i = 0; i < groups->name_count; i++)
	{
		if (strcmp(groups->names[i], group) == 0)
			return i + 1;
		if (groups->names[i][0] == '\0')
			unused = i;
	}
	if (unused < 0 && groups->name_count < GROUPS_MAX - 1)
		unused = groups->name_count++;
	if (unused < 0)
		unused = remove_unused_names();
	if (unused < 0)
		return GROUPS_MAX;

	/* Readers hold the lock of the ring, and no sample has this number yet. */
	strlcpy(groups->names[unused], group, NAMEDATALEN);
	return unused + 1;
}

/* Returns the name of the group of a sample; NULL for number 0.  The caller holds the lock of the ring. */
const char *
cellar_consumer_group_name(uint16 number)
{
	return number == 0 ? NULL : groups->names[number - 1];
}

/* awr.get_consumer_group(pid, application) */
Datum
cellar_get_consumer_group(PG_FUNCTION_ARGS)
{
	int			pid = PG_GETARG_INT32(0);
	PGPROC	   *proc = BackendPidGetProc(pid);
	char		group[NAMEDATALEN];

	if (proc == NULL)
		PG_RETURN_NULL();
	cellar_read_consumer_group(CellarProcNumber(proc), pid, text_to_cstring(PG_GETARG_TEXT_PP(1)), group);
	PG_RETURN_TEXT_P(cstring_to_text(group));
}

/* ---- settings ---- */

/* Returns whether a text of "length" bytes is the name of a group.  Reports an error to the caller of the check hook. */
static bool
is_group_name(const char *name, int length)
{
	bool		is_valid = length > 0 && length < NAMEDATALEN;

	for (int i = 0; i < length; i++)
	{
		unsigned char byte = (unsigned char) name[i];

		/* Databases of all encodings contain these. */
		is_valid = is_valid && !IS_HIGHBIT_SET(byte) && (isalnum(byte) || strchr("_-.$#", byte) != NULL);
	}
	if (!is_valid)
		GUC_check_errdetail("\"%.*s\" is not a name of a consumer group: 1 to %d ASCII letters, digits, or characters of _-.$#.",
							length, name, NAMEDATALEN - 1);
	return is_valid;
}

bool
cellar_check_consumer_group(char **value, void **extra, GucSource source)
{
	return *value == NULL || **value == '\0' || is_group_name(*value, strlen(*value));
}

/* Publishes the setting of this process, or of the configuration. */
void
cellar_assign_consumer_group(const char *value, void *extra)
{
	if (groups == NULL)
		return;
	if (!IsUnderPostmaster)
		write_slot(&groups->configured, 0, value);
	else if (MyProc != NULL)
		write_slot(&groups->slots[CellarProcNumber(MyProc)], MyProcPid, value);
}

static const char *
skip_spaces(const char *text)
{
	while (isspace((unsigned char) *text))
		text++;
	return text;
}

/* Copies the pattern at *text, which "=" follows, and skips both.  Returns false after an error. */
static bool
parse_pattern(const char **text, char *pattern)
{
	const char *start = *text;
	const char *from = start;
	int			position = 0;
	int			length = 0;
	bool		is_quoted = *from == '"';
	bool		is_closed = !is_quoted;

	if (is_quoted)
		from++;
	while (*from != '\0' && (is_quoted || (*from != '=' && *from != ',')))
	{
		/* Two quotes are a quote. */
		if (is_quoted && *from == '"' && *++from != '"')
		{
			is_closed = true;
			break;
		}
		if (position < NAMEDATALEN)
			pattern[position] = *from;
		position++;
		/* Spaces at the end belong to a pattern in quotes only. */
		if (is_quoted || !isspace((unsigned char) *from))
			length = position;
		from++;
	}
	*text = skip_spaces(from);
	if (!is_closed)
		GUC_check_errdetail("Quote without an end in \"%s\".", start);
	else if (length == 0 && !is_quoted)
		GUC_check_errdetail("No pattern of application names before \"%s\".", start);
	else if (**text != '=')
		GUC_check_errdetail("No \"=\" and consumer group after the pattern in \"%s\".", start);
	else if (length >= NAMEDATALEN)
		GUC_check_errdetail("The pattern in \"%s\" is longer than %d bytes.", start, NAMEDATALEN - 1);
	else
	{
		pattern[length] = '\0';
		*text = skip_spaces(*text + 1);
		return true;
	}
	return false;
}

/* Copies the name of a group at *text, and skips it with the comma behind it.  Returns false after an error. */
static bool
parse_group(const char **text, char *group, bool *is_last)
{
	const char *end = strchr(*text, ',');
	int			length;

	*is_last = end == NULL;
	if (*is_last)
		end = *text + strlen(*text);
	length = end - *text;
	while (length > 0 && isspace((unsigned char) (*text)[length - 1]))
		length--;
	if (!is_group_name(*text, length))
		return false;
	memcpy(group, *text, length);
	group[length] = '\0';
	*text = *is_last ? end : skip_spaces(end + 1);
	return true;
}

bool
cellar_check_consumer_group_mappings(char **value, void **extra, GucSource source)
{
	const char *text = *value != NULL ? skip_spaces(*value) : "";
	int			most = 1;		/* mappings: one more than commas */
	bool		is_last = *text == '\0';
	GroupMappings *parsed;

	for (const char *comma = strchr(text, ','); comma != NULL; comma = strchr(comma + 1, ','))
		most++;
	parsed = CellarGucMalloc(offsetof(GroupMappings, mappings) + most * sizeof(GroupMapping));
	if (parsed == NULL)
		return false;
	parsed->count = 0;
	while (!is_last)
	{
		GroupMapping *mapping = &parsed->mappings[parsed->count++];

		if (!parse_pattern(&text, mapping->pattern) || !parse_group(&text, mapping->group, &is_last))
		{
			GUC_check_errhint("Write mappings as 'etl*=batch, \"my, program\"=interactive'.");
			CellarGucFree(parsed);
			return false;
		}
	}
	*extra = parsed;
	return true;
}

void
cellar_assign_consumer_group_mappings(const char *value, void *extra)
{
	mappings = extra;
}
