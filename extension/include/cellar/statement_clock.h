/*-------------------------------------------------------------------------
 *
 * cellar/statement_clock.h
 *	  Elapsed time and CPU time of the phases of statements.
 *
 *-------------------------------------------------------------------------
 */
#ifndef CELLAR_STATEMENT_CLOCK_H
#define CELLAR_STATEMENT_CLOCK_H

#include "portability/instr_time.h"

#include "cellar/statement_table.h"

typedef enum CellarPhase
{
	CELLAR_PHASE_OTHER,
	CELLAR_PHASE_PARSING,
	CELLAR_PHASE_PLANNING,
	CELLAR_PHASE_STARTING,
	CELLAR_PHASE_EXECUTING
} CellarPhase;

extern void cellar_end_phase(CellarPhase phase, instr_time time);
extern instr_time cellar_begin_phase(CellarPhase previous);
extern bool cellar_last_phase_end(instr_time *time);
extern void cellar_forget_phase(void);
extern uint64 cellar_nanoseconds_between(instr_time from, instr_time to);
extern uint64 cellar_read_cpu(void);
extern bool cellar_must_read_cpu(const CellarStatement *entry);
extern void cellar_learn_cpu(CellarStatement *entry, uint64 used_ns);

#endif							/* CELLAR_STATEMENT_CLOCK_H */
