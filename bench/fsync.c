/* Preloaded into a measured process: counts what is flushed to the disk, and makes each flush slower if asked to. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <time.h>

static atomic_long flushed;

long bench_flushed(void) { return atomic_load(&flushed); }

static int flush(const char *name, int file) {
  int (*real)(int) = (int (*)(int))dlsym(RTLD_NEXT, name);
  const char *asked = getenv("BENCH_FSYNC_MICROSECONDS");
  long microseconds = asked ? atol(asked) : 0;
  struct timespec pause = {microseconds / 1000000, microseconds % 1000000 * 1000};
  atomic_fetch_add(&flushed, 1);
  if (microseconds > 0) nanosleep(&pause, NULL);
  return real(file);
}

int fsync(int file) { return flush("fsync", file); }

int fdatasync(int file) { return flush("fdatasync", file); }
