/*-------------------------------------------------------------------------
 *
 * texts.c
 *	  The ring of texts of statements and plans in shared memory.
 *
 * A session adds the texts of a statement and its plan when the statement first
 * runs.  awr.get_plans() returns the texts after a sequence number; the AWR worker
 * stores them every minute.  Records have variable length.  When the ring is full,
 * a new record replaces the oldest ones; a reader recognizes lost texts by a gap
 * in the sequence numbers.
 *
 * A text has the encoding of the database in which the statement ran.  The reader
 * converts it, and writes bytes without an equivalent as \xNN, so that no
 * statement of one database can fail the AWR snapshots of another.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "catalog/namespace.h"
#include "funcapi.h"
#include "mb/pg_wchar.h"
#include "storage/shmem.h"
#include "utils/builtins.h"
#include "utils/tuplestore.h"

#include "cellar.h"
#include "cellar/awr.h"
#include "cellar/compat.h"

PG_FUNCTION_INFO_V1(cellar_get_plans);

/* Longer texts are truncated. */
#define QUERY_TEXT_BYTES	(16 * 1024)
#define PLAN_TEXT_BYTES		(16 * 1024)

/* A record: this header, the query's text and the plan's text, without terminating zeros. */
typedef struct TextRecord
{
	uint32		length;			/* of the record, a multiple of
								 * MAXIMUM_ALIGNOF */
	uint32		query_length;
	uint32		plan_length;	/* 0 for utility statements */
	int32		encoding;
	int64		query_id;		/* 0: the record only fills the ring up to its
								 * end */
	int64		plan_id;
	uint64		sequence;
} TextRecord;

/* Offsets only increase; the place of a record in the ring is its offset modulo the ring's size. */
typedef struct TextRing
{
	uint64		oldest;			/* offset of the oldest record */
	uint64		end;			/* offset after the newest record */
	uint64		next_sequence;	/* the first is 1 */
	uint64		size;
	char		bytes[FLEXIBLE_ARRAY_MEMBER];
} TextRing;

static TextRing *ring = NULL;
static LWLock *ring_lock = NULL;

Size
cellar_texts_bytes(void)
{
	return add_size(MAXALIGN(offsetof(TextRing, bytes)), (Size) cellar_awr_text_buffer * 1024);
}

void
cellar_texts_init(LWLock *lock)
{
	bool		found;

	ring_lock = lock;
	ring = ShmemInitStruct("cellar statement texts", cellar_texts_bytes(), &found);
	if (found)
		return;
	memset(ring, 0, offsetof(TextRing, bytes));
	ring->next_sequence = 1;
	ring->size = (uint64) cellar_awr_text_buffer * 1024;
}

static char *
ring_start(void)
{
	return (char *) ring + MAXALIGN(offsetof(TextRing, bytes));
}

/* Returns the record at an offset.  The bytes from an offset to the end of the ring may be too few for a header. */
static TextRecord *
record_at(uint64 offset)
{
	return (TextRecord *) (ring_start() + offset % ring->size);
}

static bool
fills_the_end(uint64 offset)
{
	return ring->size - offset % ring->size < sizeof(TextRecord) || record_at(offset)->query_id == 0;
}

/* Returns the offset of the record after the one at an offset. */
static uint64
next_offset(uint64 offset)
{
	if (fills_the_end(offset))
		return offset + (ring->size - offset % ring->size);
	return offset + record_at(offset)->length;
}

/* Removes the oldest records until the ring has space for "length" bytes.  The caller holds the lock. */
static void
make_space(uint64 length)
{
	while (ring->end + length - ring->oldest > ring->size)
		ring->oldest = next_offset(ring->oldest);
}

/*
 * Adds the text of a statement, which is a part of the source text, and of its
 * plan.  A length of 0 means the rest of the source text.
 */
void
cellar_add_text(int64 query_id, int64 plan_id, const char *source, int location, int length, const char *plan)
{
	TextRecord	header = {.query_id = query_id,.plan_id = plan_id,.encoding = GetDatabaseEncoding()};
	uint64		to_end;
	char	   *place;

	location = Max(location, 0);
	if (length <= 0)
		length = strlen(source) - location;
	header.query_length = pg_mbcliplen(source + location, length, QUERY_TEXT_BYTES);
	header.plan_length = pg_mbcliplen(plan, strlen(plan), PLAN_TEXT_BYTES);
	header.length = MAXALIGN(sizeof(TextRecord) + header.query_length + header.plan_length);

	LWLockAcquire(ring_lock, LW_EXCLUSIVE);
	to_end = ring->size - ring->end % ring->size;
	if (to_end < header.length)
	{
		make_space(to_end);
		if (to_end >= sizeof(TextRecord))
			record_at(ring->end)->query_id = 0;
		ring->end += to_end;
	}
	make_space(header.length);
	header.sequence = ring->next_sequence++;
	place = (char *) record_at(ring->end);
	memcpy(place, &header, sizeof(TextRecord));
	memcpy(place + sizeof(TextRecord), source + location, header.query_length);
	memcpy(place + sizeof(TextRecord) + header.query_length, plan, header.plan_length);
	ring->end += header.length;
	LWLockRelease(ring_lock);
}

/*
 * Appends a text in another encoding.  Bytes that are invalid, or whose character
 * the encoding "to" lacks, become \xNN, after "escape" (a backslash; two in JSON).
 */
void
cellar_append_converted(StringInfo out, const char *text, int length, int from, int to, const char *escape)
{
	Oid			function = InvalidOid;
	int			growth = 1;

	if (from != to && from != PG_SQL_ASCII && to != PG_SQL_ASCII)
	{
		function = FindDefaultConversionProc(from, to);
		growth = MAX_CONVERSION_GROWTH;
	}
	while (length > 0)
	{
		int			valid = pg_encoding_verifymbstr(OidIsValid(function) ? from : to, text, length);
		int			used = valid;
		int			skipped;

		if (OidIsValid(function) && valid > 0)
		{
			/* The conversion adds a terminating zero. */
			enlargeStringInfo(out, valid * growth + 1);
			used = pg_do_encoding_conversion_buf(function, from, to, unconstify(unsigned char *, (const unsigned char *) text), valid,
												 (unsigned char *) out->data + out->len, valid * growth + 1, true);
			out->len += strlen(out->data + out->len);
		}
		else
			appendBinaryStringInfo(out, text, valid);
		text	  +=used;

		length -= used;
		if (length == 0)
			break;

		/*
		 * A valid character that the other encoding lacks, or one invalid
		 * byte
		 */
		skipped = used < valid ? Max(pg_encoding_verifymbchar(from, text, length), 1) : 1;
		for (int i = 0; i < skipped; i++)
			appendStringInfo(out, "%sx%02X", escape, (unsigned char) text[i]);
		text	  +=skipped;

		length -= skipped;
	}
}

static Datum
text_to_server(const char *text, int length, int encoding)
{
	StringInfoData converted;

	initStringInfo(&converted);
	cellar_append_converted(&converted, text, length, encoding, GetDatabaseEncoding(), "\\");
	return PointerGetDatum(cstring_to_text_with_len(converted.data, converted.len));
}

/* awr.get_plans(after_sequence) */
Datum
cellar_get_plans(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *rsinfo = (ReturnSetInfo *) fcinfo->resultinfo;
	uint64		after = (uint64) Max(PG_GETARG_INT64(0), 0);
	StringInfoData copy;
	char	   *place;

	cellar_begin_rows(fcinfo, 5);
	if (ring == NULL)
		return (Datum) 0;

	/* Copying is fast; converting is not, and must not delay sessions. */
	initStringInfo(&copy);
	for (;;)
	{
		uint64		bytes = 0;

		LWLockAcquire(ring_lock, LW_SHARED);
		for (uint64 offset = ring->oldest; offset < ring->end; offset = next_offset(offset))
		{
			if (!fills_the_end(offset) && record_at(offset)->sequence > after)
				bytes += record_at(offset)->length;
		}

		/*
		 * Memory is not allocated under the lock, because an error there is
		 * expensive.
		 */
		if (bytes <= (uint64) copy.maxlen)
		{
			for (uint64 offset = ring->oldest; offset < ring->end; offset = next_offset(offset))
			{
				TextRecord *record = record_at(offset);

				if (fills_the_end(offset) || record->sequence <= after)
					continue;
				memcpy(copy.data + copy.len, record, record->length);
				copy.len += record->length;
			}
			LWLockRelease(ring_lock);
			break;
		}
		LWLockRelease(ring_lock);
		pfree(copy.data);
		copy.data = palloc_extended(bytes, MCXT_ALLOC_HUGE);
		copy.maxlen = (int) bytes;
	}

	for (place = copy.data; place < copy.data + copy.len; place += ((TextRecord *) place)->length)
	{
		const TextRecord *record = (const TextRecord *) place;
		const char *query = place + sizeof(TextRecord);
		Datum		values[5];
		bool		nulls[5] = {false};

		values[0] = Int64GetDatum((int64) record->sequence);
		values[1] = Int64GetDatum(record->query_id);
		values[2] = Int64GetDatum(record->plan_id);
		values[3] = text_to_server(query, record->query_length, record->encoding);
		if (record->plan_id != 0)
			values[4] = text_to_server(query + record->query_length, record->plan_length, record->encoding);
		else
			nulls[4] = true;
		tuplestore_putvalues(rsinfo->setResult, rsinfo->setDesc, values, nulls);
	}
	return (Datum) 0;
}
