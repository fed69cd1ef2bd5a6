/* Preloaded into a server: adds the offset in the file that CLOCK_OFFSET names, in seconds, to the system's clock. */
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <time.h>

static volatile const int64_t *offset;

__attribute__((constructor)) static void
map_offset(void)
{
	const char *name = getenv("CLOCK_OFFSET");
	int			file = name != NULL ? open(name, O_RDONLY | O_CLOEXEC) : -1;
	void	   *page = file >= 0 ? mmap(NULL, sizeof(*offset), PROT_READ, MAP_SHARED, file, 0) : MAP_FAILED;

	if (page != MAP_FAILED)
		offset = page;
}

int
gettimeofday(struct timeval *restrict time, void *restrict zone)
{
	struct timespec now;

	(void) zone;
	clock_gettime(CLOCK_REALTIME, &now);
	time->tv_sec = now.tv_sec + (offset != NULL ? *offset : 0);
	time->tv_usec = now.tv_nsec / 1000;
	return 0;
}
