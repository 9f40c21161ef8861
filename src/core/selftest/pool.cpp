#include "../pool.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <stdexcept>
#include <thread>
#include <vector>

#include "selftest.h"

namespace lilliput::selftest {
namespace {

void expect(bool good, const char* what) {
  if (!good) throw std::logic_error(std::string("pool: ") + what);
}

// Each task exactly once, in contiguous ranges.
void every_task_once(size_t tasks) {
  std::vector<int> done(tasks);
  std::atomic<size_t> ranges{0};
  parallel_for(tasks, 1, [&](size_t begin, size_t end) {
    ranges++;
    for (size_t i = begin; i < end; i++) done[i]++;
  });
  for (const int n : done) expect(n == 1, "a task ran twice or never");
  expect(ranges <= std::min(tasks, 8 * threads()) && (ranges > 0 || tasks == 0), "wrong number of ranges");
}

// A thread that cannot go on keeps nobody waiting but for the one range it has claimed.
void others_do_what_one_does_not() {
  constexpr size_t tasks = 16;
  std::atomic<size_t> done{0};
  const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  parallel_for(tasks, 1, [&](size_t begin, size_t end) {
    expect(end - begin == 1, "few tasks were not split one by one");
    while (begin == 0 && done < tasks - 1 && std::chrono::steady_clock::now() < limit) std::this_thread::yield();
    expect(begin != 0 || done == tasks - 1, "ranges waited for a thread that was busy");
    done++;
  });
}

void little_work_stays_here() {
  const auto here = std::this_thread::get_id();
  set_threads(threads(), 1000);
  size_t ranges = 0;
  bool same = true;
  parallel_for(99, 10, [&](size_t, size_t) {
    ranges++;
    same = same && std::this_thread::get_id() == here;
  });
  set_threads(threads(), 0);
  expect(ranges == 1 && same, "little work woke the workers");
}

void an_exception_ends_the_call(size_t from) {
  std::atomic<size_t> ended{0};
  bool caught = false;
  try {
    parallel_for(64, 1, [&](size_t begin, size_t end) {
      if (from >= begin && from < end) throw std::runtime_error("on purpose");
      ended += end - begin;
    });
  } catch (const std::runtime_error& e) {
    caught = std::string(e.what()) == "on purpose";
  }
  expect(caught, "an exception was lost");
  expect(ended < 64, "a range that threw counted as done");
}

void nested_calls_run_in_place() {
  std::atomic<size_t> inner{0};
  parallel_for(8, 1, [&](size_t begin, size_t end) {
    for (size_t i = begin; i < end; i++) parallel_for(10, 1, [&](size_t b, size_t e) { inner += e - b; });
  });
  expect(inner == 80, "a nested call lost tasks");
}

void callers_take_turns() {
  std::atomic<size_t> wrong{0};
  std::vector<std::thread> callers;
  for (size_t c = 0; c < 3; c++)
    callers.emplace_back([&wrong, c] {
      for (size_t round = 0; round < 40; round++) {
        std::vector<size_t> out(100 + c);
        parallel_for(out.size(), 1, [&](size_t begin, size_t end) {
          for (size_t i = begin; i < end; i++) out[i] = i * (c + 1);
        });
        for (size_t i = 0; i < out.size(); i++) wrong += out[i] != i * (c + 1);
      }
    });
  for (auto& caller : callers) caller.join();
  expect(wrong == 0, "callers at the same time mixed their ranges");
}

}  // namespace

void check_pool() {
  struct Restore {
    size_t n = threads(), least = least_work();
    ~Restore() { set_threads(n, least); }
  } restore;
  for (const size_t n : {1, 2, 3, 5, 2}) {
    set_threads(n, 0);
    for (const size_t tasks : {0, 1, 2, 3, 7, 1000}) every_task_once(tasks);
    for (const size_t from : {0, 31, 63}) an_exception_ends_the_call(from);
    little_work_stays_here();
    if (n > 1) others_do_what_one_does_not();
    nested_calls_run_in_place();
    callers_take_turns();
  }
}

}  // namespace lilliput::selftest
