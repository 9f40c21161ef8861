// The thread pool: the caller and n - 1 workers, static split, so that results cannot depend on the number of threads.
#pragma once

#include <cstddef>
#include <type_traits>

namespace lilliput {

void set_threads(size_t n);  // throws std::invalid_argument for 0
size_t threads();

namespace detail {
void parallel(size_t tasks, void (*body)(void* context, size_t begin, size_t end), void* context);
}

// Runs body(begin, end) over [0, tasks), one contiguous range per thread; `tasks` are independent of each other.
// Every range runs under an FpuGuard. A nested call runs in place, concurrent callers
// take turns. The first exception reaches the caller once every range has ended.
template <class Body>
void parallel_for(size_t tasks, Body&& body) {
  using Plain = std::remove_reference_t<Body>;
  detail::parallel(
      tasks, [](void* c, size_t b, size_t e) { (*static_cast<Plain*>(c))(b, e); }, const_cast<void*>(static_cast<const void*>(&body)));
}

}  // namespace lilliput
