// Where the time of a pass goes: wall time of each kind of operation, taken at the entry points of ops_dot.h, ops_math.h and
// sampling.h. Off unless asked for, and then one atomic load per operation. Operations of several threads at once are added up.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace lilliput::profile {

enum class Kind : size_t {
  f32,          // products with rows of float32
  bf16,         // with bf16 rows in place
  k12,          // with packed rows
  experts,      // with MXFP4 rows; SiTU and adding up included
  kv_b,         // into the queries, and out of the sums over latents
  attention,    // over the latents
  kda,          // the recurrence
  convolution,  // and its tails
  norms,        // RMS, L2, gated
  mixing,       // of residual blocks
  elementwise,  // gates, SiTU, decay, sums
  router,       // without its product
  choice,       // argmax, log-softmax, sampling, checks for finite logits
  forks,        // of all the above: waking the other threads
  joins,        // and waiting for them, the calling thread's own share done
  count
};

struct Line {
  std::string name;
  uint64_t calls;
  double seconds;
};

void start();              // from nothing
std::vector<Line> stop();  // every kind

namespace detail {
extern std::atomic<bool> on;
uint64_t now();  // nanoseconds, never 0
void add(Kind kind, uint64_t since);
}  // namespace detail

// Counts the life of the object.
class Timed {
 public:
  explicit Timed(Kind kind) : kind_(kind), since_(detail::on.load(std::memory_order_relaxed) ? detail::now() : 0) {}
  ~Timed() {
    if (since_) detail::add(kind_, since_);
  }
  Timed(const Timed&) = delete;
  Timed& operator=(const Timed&) = delete;

 private:
  const Kind kind_;
  const uint64_t since_;
};

}  // namespace lilliput::profile
