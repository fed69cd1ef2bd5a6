/*-------------------------------------------------------------------------
 *
 * cellar/statement_part.h
 *	  What a part of an execution takes.
 *
 *-------------------------------------------------------------------------
 */
#ifndef CELLAR_STATEMENT_PART_H
#define CELLAR_STATEMENT_PART_H

#include "executor/instrument.h"

#include "cellar/statement_clock.h"
#include "cellar/statement_table.h"
#include "cellar/statistics.h"

/* Each statement passes here: hidden symbols are reached without indirection. */
#pragma GCC visibility push(hidden)

/* What this process had used at a moment. */
typedef struct CellarUsage
{
	BufferUsage buffers;
	WalUsage	wal;
	CellarSmartScanBytes bytes;
} CellarUsage;

/* One or more calls of ExecutorStart, ExecutorRun and ExecutorFinish, or a utility statement. */
typedef struct CellarPart
{
	CellarKernelReading reading;
	CellarUsage before;
	instr_time	began;
	instr_time	ended;
	CellarKernelTimes started;
	uint64		elapsed_ns;		/* as the next, valid when the part has ended */
	CellarKernelTimes used;
} CellarPart;

extern void cellar_begin_part(CellarPart *part, CellarPhase previous, CellarKernelReading reading);
extern void cellar_begin_usage(CellarPart *part);
extern void cellar_end_part(CellarPart *part, CellarStatement *statement, bool counts_usage);
extern void cellar_count_execution(CellarStatement *statement, uint64 elapsed_ns, CellarKernelReading reading,
								   CellarKernelTimes used, instr_time ended);

#pragma GCC visibility pop

#endif							/* CELLAR_STATEMENT_PART_H */
