/*-------------------------------------------------------------------------
 *
 * cellar.h
 *	  Names and settings that all parts of the extension share.
 *
 * Each folder has a header below cellar/.
 *
 *-------------------------------------------------------------------------
 */
#ifndef CELLAR_H
#define CELLAR_H

#define CELLAR_SCAN_NAME	"Smart Scan"
#define CELLAR_AGGREGATE_NAME	"Smart Scan Aggregate"

/* settings.c */

typedef enum CellarPlanDisplay
{
	CELLAR_DISPLAY_NEVER,
	CELLAR_DISPLAY_AUTO,
	CELLAR_DISPLAY_ALWAYS
} CellarPlanDisplay;

extern bool cellar_offload_processing;
extern int	cellar_plan_display;
extern bool cellar_simulate_offload;
extern int	cellar_min_scan_size;	/* blocks */
extern double cellar_cost_factor;
extern double cellar_cell_page_cost;
extern double cellar_returned_page_cost;
extern bool cellar_auto_compression;
extern int	cellar_compression_naptime; /* seconds */

extern void cellar_define_settings(void);

#endif							/* CELLAR_H */
