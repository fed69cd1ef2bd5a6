/*-------------------------------------------------------------------------
 *
 * samples.c
 *	  The ring of session samples in shared memory.
 *
 * The sampler (sampler.c) adds the samples of each tick.  awr.get_samples()
 * reads the samples after a sequence number; the AWR worker calls it every
 * minute and stores the samples in the repository.  When the ring is full,
 * a new sample replaces the oldest one; a reader recognizes lost samples by a gap
 * in the sequence numbers.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "funcapi.h"
#include "miscadmin.h"
#include "storage/shmem.h"
#include "utils/builtins.h"
#include "utils/timestamp.h"
#include "utils/tuplestore.h"

#include "cellar.h"
#include "cellar/awr.h"
#include "cellar/compat.h"
#include "cellar/statistics.h"

PG_FUNCTION_INFO_V1(cellar_get_samples);
PG_FUNCTION_INFO_V1(cellar_get_sampler_state);

typedef struct SampleRing
{
	uint64		next_sequence;	/* of the next sample; the first is 1 */
	uint64		ticks;
	uint64		late_ticks;
	uint64		capacity;
	CellarSample samples[FLEXIBLE_ARRAY_MEMBER];
} SampleRing;

static SampleRing *ring = NULL;
static LWLock *ring_lock = NULL;

Size
cellar_samples_bytes(void)
{
	return add_size(offsetof(SampleRing, samples), (Size) cellar_awr_sample_buffer * 1024);
}

void
cellar_samples_init(LWLock *lock)
{
	bool		found;

	ring_lock = lock;
	ring = ShmemInitStruct("cellar session samples", cellar_samples_bytes(), &found);
	if (found)
		return;
	memset(ring, 0, offsetof(SampleRing, samples));
	ring->next_sequence = 1;
	ring->capacity = (Size) cellar_awr_sample_buffer * 1024 / sizeof(CellarSample);
}

void
cellar_add_sample(const CellarSample *sample)
{
	LWLockAcquire(ring_lock, LW_EXCLUSIVE);
	ring->samples[ring->next_sequence % ring->capacity] = *sample;
	ring->next_sequence++;
	LWLockRelease(ring_lock);
}

/* Counts a tick.  A late tick began more than half a period after it was due. */
void
cellar_end_tick(bool late)
{
	LWLockAcquire(ring_lock, LW_EXCLUSIVE);
	ring->ticks++;
	if (late)
		ring->late_ticks++;
	LWLockRelease(ring_lock);
}

/*
 * Sets used[n] for each number n of a consumer group to which a sample refers.
 * Returns false, without a look at the samples, if few of them are new since the
 * last call: the same groups are in use.  Called by the sampler.
 */
bool
cellar_find_sampled_groups(bool *used)
{
	static uint64 last_sequence = 0;
	uint64		count = Min(ring->next_sequence - 1, ring->capacity);

	if (last_sequence != 0 && ring->next_sequence - last_sequence < ring->capacity / 16)
		return false;
	last_sequence = ring->next_sequence;
	/* No other process writes to the ring. */
	for (uint64 i = 1; i <= count; i++)
		used[ring->samples[(ring->next_sequence - i) % ring->capacity].consumer_group] = true;
	return true;
}

static const char *
state_name(const CellarSample *sample)
{
	switch (sample->state)
	{
		case STATE_IDLEINTRANSACTION:
			return "idle in transaction";
		case STATE_IDLEINTRANSACTION_ABORTED:
			return "idle in transaction (aborted)";
		case STATE_FASTPATH:
			return "fastpath function call";
		default:
			return "active";
	}
}

/* Returns the name of a wait event, NULL on CPU. Before PostgreSQL 17, the waits for cells are known only here. */
static const char *
wait_event_name(uint32 wait_event)
{
	for (int wait = 0; wait < CELLAR_WAITS; wait++)
	{
		if (CellarIsWaitEvent(wait_event, wait))
			return cellar_wait_names[wait];
	}
	return pgstat_get_wait_event(wait_event);
}

static void
put_sample(ReturnSetInfo *rsinfo, uint64 sequence, const CellarSample *sample, const char *consumer_group)
{
	Datum		values[20];
	bool		nulls[20] = {false};
	const char *event_type = pgstat_get_wait_event_type(sample->wait_event);
	const char *event = wait_event_name(sample->wait_event);

	values[0] = Int64GetDatum((int64) sequence);
	values[1] = TimestampTzGetDatum(sample->time);
	values[2] = Int32GetDatum(sample->pid);
	values[3] = TimestampTzGetDatum(sample->backend_start);
	values[4] = Int32GetDatum(sample->leader_pid);
	nulls[4] = sample->leader_pid == 0;
	values[5] = ObjectIdGetDatum(sample->database);
	nulls[5] = !OidIsValid(sample->database);
	values[6] = ObjectIdGetDatum(sample->role);
	nulls[6] = !OidIsValid(sample->role);
	values[7] = CStringGetTextDatum(sample->application);
	values[8] = CStringGetTextDatum(sample->client);
	nulls[8] = sample->client[0] == '\0';
	values[9] = CStringGetTextDatum(sample->leader_pid != 0 ? CELLAR_PARALLEL_WORKER : GetBackendTypeDesc(sample->backend_type));
	values[10] = CStringGetTextDatum(state_name(sample));
	nulls[11] = nulls[12] = event == NULL;
	if (event != NULL)
	{
		values[11] = CStringGetTextDatum(event_type);
		values[12] = CStringGetTextDatum(event);
	}
	values[13] = Int64GetDatum(sample->query_id);
	nulls[13] = sample->query_id == 0;
	values[14] = Int64GetDatum(sample->plan_hash);
	nulls[14] = sample->plan_hash == 0;
	values[15] = Int64GetDatum(Max(sample->time - sample->xact_start, 0));
	nulls[15] = sample->xact_start == 0;
	values[16] = Int64GetDatum(Max(sample->time - sample->query_start, 0));
	nulls[16] = sample->query_start == 0;
	values[17] = Int32GetDatum(sample->blocker_pid);
	nulls[17] = sample->blocker_pid == 0;
	values[18] = Int64GetDatum(sample->temp_bytes);
	nulls[18] = sample->temp_bytes < 0;
	nulls[19] = consumer_group == NULL;
	if (consumer_group != NULL)
		values[19] = CStringGetTextDatum(consumer_group);
	tuplestore_putvalues(rsinfo->setResult, rsinfo->setDesc, values, nulls);
}

/* awr.get_samples(after_sequence) */
Datum
cellar_get_samples(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *rsinfo = (ReturnSetInfo *) fcinfo->resultinfo;
	uint64		sequence = (uint64) Max(PG_GETARG_INT64(0), 0) + 1;

	cellar_begin_rows(fcinfo, 20);
	if (ring == NULL || ring->capacity == 0)
		return (Datum) 0;
	for (;;)
	{
		CellarSample sample;
		char		group[NAMEDATALEN];
		uint64		oldest;
		bool		found;

		LWLockAcquire(ring_lock, LW_SHARED);
		oldest = ring->next_sequence > ring->capacity ? ring->next_sequence - ring->capacity : 1;
		sequence = Max(sequence, oldest);
		found = sequence < ring->next_sequence;
		if (found)
		{
			sample = ring->samples[sequence % ring->capacity];
			/* Later, the number of the group can get another name. */
			if (sample.consumer_group != 0)
				strlcpy(group, cellar_consumer_group_name(sample.consumer_group), NAMEDATALEN);
		}
		LWLockRelease(ring_lock);
		if (!found)
			break;
		put_sample(rsinfo, sequence++, &sample, sample.consumer_group != 0 ? group : NULL);
	}
	return (Datum) 0;
}

/* awr.get_sampler_state() */
Datum
cellar_get_sampler_state(PG_FUNCTION_ARGS)
{
	TupleDesc	desc;
	Datum		values[5];
	bool		nulls[5] = {false};

	if (get_call_result_type(fcinfo, NULL, &desc) != TYPEFUNC_COMPOSITE)
		elog(ERROR, "return type must be a row type");
	cellar_check_columns(fcinfo, desc, lengthof(values));
	if (ring == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("cellar must be loaded via \"shared_preload_libraries\"")));
	LWLockAcquire(ring_lock, LW_SHARED);
	values[0] = Int64GetDatum((int64) ring->next_sequence);
	values[1] = Int64GetDatum((int64) ring->ticks);
	values[2] = Int64GetDatum((int64) ring->late_ticks);
	values[3] = Int64GetDatum((int64) ring->capacity);
	LWLockRelease(ring_lock);
	values[4] = Int32GetDatum(cellar_awr_sample_period);
	PG_RETURN_DATUM(HeapTupleGetDatum(heap_form_tuple(BlessTupleDesc(desc), values, nulls)));
}
