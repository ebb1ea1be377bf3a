// This library is loaded before the other libraries of a database server. It slows down flushes of files, and shifts
// the wall clock. A control file that Go writes while the server runs says by how much; see ../faults.go.

#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

struct control {
	volatile int64_t flush; // microseconds by which each flush is delayed
	volatile int64_t shift; // microseconds that the clock is ahead
};

static struct control none;
static struct control *control = &none;

__attribute__((constructor)) static void begin(void) {
	const char *path = getenv("HEADGATE_FAULTS");
	int fd = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
	if (fd < 0) return;
	void *page = mmap(NULL, sizeof *control, PROT_READ, MAP_SHARED, fd, 0);
	close(fd);
	if (page != MAP_FAILED) control = page;
}

static struct timespec plus(struct timespec t, int64_t microseconds) {
	int64_t nanoseconds = t.tv_nsec + microseconds % 1000000 * 1000;
	t.tv_sec += microseconds / 1000000;
	if (nanoseconds < 0) t.tv_sec--, nanoseconds += 1000000000;
	if (nanoseconds >= 1000000000) t.tv_sec++, nanoseconds -= 1000000000;
	t.tv_nsec = nanoseconds;
	return t;
}

// NEXT is the function of the same name that this library hides.
#define NEXT(name) \
	static __typeof__(name) *next; \
	if (!next) next = (__typeof__(name) *)dlsym(RTLD_NEXT, #name)

int clock_gettime(clockid_t id, struct timespec *t) {
	NEXT(clock_gettime);
	int result = next ? next(id, t) : (int)syscall(SYS_clock_gettime, id, t);
	int64_t shift = control->shift;
	if (result == 0 && shift && (id == CLOCK_REALTIME || id == CLOCK_REALTIME_COARSE)) *t = plus(*t, shift);
	return result;
}

int gettimeofday(struct timeval *restrict t, void *restrict zone) {
	struct timespec now;
	(void)zone; // obsolete
	if (clock_gettime(CLOCK_REALTIME, &now)) return -1;
	t->tv_sec = now.tv_sec;
	t->tv_usec = now.tv_nsec / 1000;
	return 0;
}

time_t time(time_t *t) {
	struct timespec now;
	if (clock_gettime(CLOCK_REALTIME, &now)) return -1;
	if (t) *t = now.tv_sec;
	return now.tv_sec;
}

int timespec_get(struct timespec *t, int base) {
	return base == TIME_UTC && clock_gettime(CLOCK_REALTIME, t) == 0 ? base : 0;
}

// UNTIL converts a deadline by the shifted wall clock to the kernel's clock.
#define UNTIL(t) \
	struct timespec until = *(t); \
	if (until.tv_sec > 1000000000) until = plus(until, -control->shift) // small times are by the monotonic clock

// CONDITION is NEXT for conditions: dlsym would return the oldest version in glibc, whose conditions differ.
#define CONDITION(name) \
	static __typeof__(name) *next; \
	if (!next) next = (__typeof__(name) *)dlvsym(RTLD_NEXT, #name, "GLIBC_2.3.2"); \
	if (!next) next = (__typeof__(name) *)dlsym(RTLD_NEXT, #name)

int pthread_cond_timedwait(pthread_cond_t *restrict c, pthread_mutex_t *restrict m, const struct timespec *restrict t) {
	CONDITION(pthread_cond_timedwait);
	UNTIL(t);
	return next(c, m, &until);
}

int pthread_cond_clockwait(pthread_cond_t *restrict c, pthread_mutex_t *restrict m, clockid_t id,
	const struct timespec *restrict t) {
	NEXT(pthread_cond_clockwait);
	UNTIL(t);
	return next(c, m, id, &until);
}

int pthread_mutex_timedlock(pthread_mutex_t *restrict m, const struct timespec *restrict t) {
	NEXT(pthread_mutex_timedlock);
	UNTIL(t);
	return next(m, &until);
}

int sem_timedwait(sem_t *restrict s, const struct timespec *restrict t) {
	NEXT(sem_timedwait);
	UNTIL(t);
	return next(s, &until);
}

// slow waits like a disk: no signal ends the wait.
static void slow(void) {
	int before = errno;
	struct timespec left = plus((struct timespec){0}, control->flush);
	while ((left.tv_sec || left.tv_nsec) && nanosleep(&left, &left)) {}
	errno = before;
}

int fsync(int fd) {
	NEXT(fsync);
	slow();
	return next(fd);
}

int fdatasync(int fd) {
	NEXT(fdatasync);
	slow();
	return next(fd);
}

int msync(void *address, size_t length, int flags) {
	NEXT(msync);
	if (flags & MS_SYNC) slow();
	return next(address, length, flags);
}
