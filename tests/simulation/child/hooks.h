/* Put before the C of the pool's extensions: each access to shared memory lets others go first, and time is the baton's. */
#include <stdint.h>
#include <time.h>
extern void sim_point(void);
extern int sim_clock(int, struct timespec *);
#define __atomic_load_n(...) (sim_point(), __atomic_load_n(__VA_ARGS__))
#define __atomic_store_n(...) (sim_point(), __atomic_store_n(__VA_ARGS__))
#define __atomic_exchange_n(...) (sim_point(), __atomic_exchange_n(__VA_ARGS__))
#define __atomic_compare_exchange_n(...) (sim_point(), __atomic_compare_exchange_n(__VA_ARGS__))
#define clock_gettime(id, at) sim_clock(id, at)
