/* base: how many processors this process may use. */
#ifndef PLSH_BASE_PROCESSORS_H
#define PLSH_BASE_PROCESSORS_H

/* Those that the calling thread may run on, at least 1. */
int plsh_processors_of_affinity(void);

/* How many the quotas of this process's cgroup and those above it have time for, rounded up, at
 * least 1; 0 where there is no quota. Versions 1 and 2, found by proc/self/cgroup and
 * proc/self/mountinfo under `root`, "" for the machine's own. */
int plsh_processors_of_quota(const char *root);

#endif
