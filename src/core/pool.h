// The thread pool: the caller and n - 1 workers. Which of them does a range is chance; what is computed for a task is the same in any.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace lilliput {

// Below this much work (multiply-adds or floats touched, roughly) waking the pool costs more than it gains.
constexpr size_t kWorthSplitting = 65536;

constexpr size_t kMostThreads = 1024;  // more is a slip of the hand, and could not be started

// `least_work` replaces kWorthSplitting: tests pass 0, so that small shapes are split as well. Throws std::invalid_argument for a number
// outside 1 .. kMostThreads, and ThreadError where so many cannot be started: the number set before stays in force.
void set_threads(size_t n, size_t least_work = kWorthSplitting);
size_t threads();
size_t least_work();

// Alive while a thread outside the pool is at work that wants a processor now and then, as a reader is: meanwhile no thread of the pool
// waits awake for longer than it takes to fall asleep.
class Busy {
 public:
  Busy();
  ~Busy();
  Busy(const Busy&) = delete;
  Busy& operator=(const Busy&) = delete;
};

// How often a thread of the pool has begun to wait awake for long.
uint64_t waits_awake();

namespace detail {
void parallel(size_t tasks, size_t work, size_t least_tasks, void (*body)(void* context, size_t begin, size_t end), void* context);
}

// Runs body(begin, end) over [0, tasks), in contiguous ranges that the threads claim one by one; `tasks` are independent of each other,
// and `work_per_task` decides whether they are worth more than one thread. Ranges have at least `least_tasks` tasks, while there is one
// for every thread. Every range runs under an FpuGuard. A nested call runs in place, concurrent callers take turns. The first exception
// reaches the caller once every range has ended. In a forked child the first call starts its own threads: ThreadError where it cannot.
template <class Body>
void parallel_for(size_t tasks, size_t work_per_task, size_t least_tasks, Body&& body) {
  using Plain = std::remove_reference_t<Body>;
  detail::parallel(
      tasks, tasks * work_per_task, least_tasks, [](void* c, size_t b, size_t e) { (*static_cast<Plain*>(c))(b, e); },
      const_cast<void*>(static_cast<const void*>(&body)));
}

template <class Body>
void parallel_for(size_t tasks, size_t work_per_task, Body&& body) {
  parallel_for(tasks, work_per_task, 1, body);
}

}  // namespace lilliput
