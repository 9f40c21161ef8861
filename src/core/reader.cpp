#include "reader.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <optional>
#include <system_error>
#include <thread>
#include <unordered_map>

#include "arena.h"
#include "pool.h"

namespace lilliput {
namespace {

using Clock = std::chrono::steady_clock;

constexpr size_t kMostPerCall = size_t{1} << 30;  // macOS refuses 2 GiB, Linux stops 4 KiB short of it
constexpr int kMostIdle = 64;                     // reads in a row that bring less than one block

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }
uint64_t round_down(uint64_t n, uint64_t alignment) { return n & ~(alignment - 1); }
uint64_t round_up(uint64_t n, uint64_t alignment) { return round_down(n + alignment - 1, alignment); }

struct File {
  int number = 0;
  std::string path;
  uint64_t size = 0;
  int fd = -1;
  size_t alignment = kDefaultAlignment;
  std::atomic<bool> direct{false};
  std::string why_buffered;  // under the reader's mutex
};

struct Job {
  std::shared_ptr<Arena> arena;
  size_t left = 0;  // requests queued or running
  bool urgent = false;
  bool dropped = false;  // by close: its data will never be complete
  std::optional<ReadError> error;
  double waited = 0;
  std::condition_variable changed;
};

// A reader thread. Each sleeps on a condition of its own: with several sleepers on one, notify_one of glibc before 2.41 can, once in some
// hundred thousand times, wake nobody (its bug 25847), and a pass would wait for ever. Conditions that are only ever notified as a whole
// (Job::changed) are not touched by it.
struct Worker {
  std::condition_variable wake;
  bool called = false;
  double cpu = 0;
};

struct Request {
  std::shared_ptr<Job> job;
  File* file = nullptr;
  uint64_t begin = 0, end = 0;  // aligned
  std::byte* address = nullptr;
};

}  // namespace

ssize_t Source::read(const ReadCall& call) { return ::pread(call.fd, call.buffer, call.nbytes, static_cast<off_t>(call.offset)); }

struct Reader::State {
  ReaderOptions options;
  std::shared_ptr<Source> source;

  mutable std::mutex mutex;  // everything below; never held during a read
  std::deque<Request> urgent, ahead;
  std::deque<Worker> workers;  // references stay valid
  std::vector<Worker*> idle;   // those that sleep; the last to fall asleep is called first
  std::unordered_map<Ticket, std::shared_ptr<Job>> jobs;
  std::deque<File> files;  // references stay valid
  Ticket next_ticket = 1;
  bool closing = false;
  unsigned in_flight = 0;
  Clock::time_point busy_since;
  ReaderStats counted;

  std::mutex closer;
  std::vector<std::thread> threads;

  void run(Worker& self);
  void sleep(Worker& self, std::unique_lock<std::mutex>& lock);
  void call(size_t most);
  std::optional<ReadError> read(const Request& request, uint64_t& got);
  void fall_back(File& file, int code);
  size_t drop_queued(const std::shared_ptr<Job>& job);
  const File& file(int number) const;
  const std::shared_ptr<Job>& job(Ticket ticket) const;
};

void Reader::State::sleep(Worker& self, std::unique_lock<std::mutex>& lock) {
  self.called = false;
  idle.push_back(&self);
  self.wake.wait(lock, [&] { return self.called; });
}

// Wakes up to `most` threads; those that are awake look for work by themselves before they sleep.
void Reader::State::call(size_t most) {
  for (; most > 0 && !idle.empty(); --most) {
    Worker& worker = *idle.back();
    idle.pop_back();
    worker.called = true;
    worker.wake.notify_one();
  }
}

void Reader::State::run(Worker& self) {
  name_this_thread("lilliput-read");
  std::unique_lock lock(mutex);
  for (;;) {
    while (!closing && urgent.empty() && ahead.empty()) sleep(self, lock);
    if (closing) return;
    auto& queue = urgent.empty() ? ahead : urgent;
    const auto chosen = queue.begin() + static_cast<std::ptrdiff_t>(source->choose(queue.size()));
    const Request request = std::move(*chosen);
    queue.erase(chosen);
    if (in_flight++ == 0) busy_since = Clock::now();
    counted.in_flight_max = std::max(counted.in_flight_max, in_flight);
    ++counted.requests;

    lock.unlock();
    uint64_t got = 0;
    std::optional<ReadError> error;
    {
      const Busy at_work;
      error = read(request, got);
    }
    const double spent = thread_cpu_seconds();
    lock.lock();

    self.cpu = spent;
    counted.bytes_read += got;
    if (--in_flight == 0) counted.busy_s += seconds_since(busy_since);
    Job& job = *request.job;
    if (error) {
      if (!job.error) job.error = std::move(error);
      drop_queued(request.job);
    }
    if (--job.left == 0) job.changed.notify_all();
  }
}

// Reads one request, however many calls that takes. `got` counts what the system delivered.
std::optional<ReadError> Reader::State::read(const Request& request, uint64_t& got) {
  File& file = *request.file;
  const uint64_t needed = std::min(request.end, file.size);
  const auto fail = [&](int code, uint64_t at, const std::string& what) {
    return ReadError(code, file.path, what + " at offset " + std::to_string(at) + " of " + std::to_string(file.size) + " bytes");
  };
  bool buffered = false;
  int idle = 0;
  for (uint64_t at = request.begin; at < needed;) {
    const bool direct = file.direct.load(std::memory_order_acquire);
    // A direct read keeps whole blocks also at the end of the file, where it comes back short; a buffered one may stop at the last byte.
    const uint64_t wanted = std::min<uint64_t>((direct ? request.end : needed) - at, kMostPerCall);
    const ssize_t count = source->read({file.number, file.fd, direct, request.address + (at - request.begin), wanted, at});
    if (count < 0) {
      const int code = errno;
      if (code == EINTR) continue;
      if (direct && refuses_direct(code)) {
        fall_back(file, code);
        continue;
      }
      return fail(code, at, describe_errno(code) + " reading " + std::to_string(wanted) + " bytes");
    }
    buffered |= !direct;
    got += static_cast<uint64_t>(count);
    const uint64_t reached = at + static_cast<uint64_t>(count);
    if (reached >= needed) break;
    // The next direct read must start on a block again, so a short read's last part comes twice. One that brings less than a block brings
    // nothing: the file ends there, or something between us and the disk stutters.
    const uint64_t next = direct ? round_down(reached, file.alignment) : reached;
    if (next == at) {
      const uint64_t now = file_size(file.fd);
      if (now < needed)
        return fail(EIO, at,
                    "truncated while in use: needed " + std::to_string(file.size) + " bytes, found " + std::to_string(now) + ", reading");
      if (++idle == kMostIdle) return fail(EIO, at, "no progress: " + std::to_string(idle) + " reads brought less than a block");
    } else {
      idle = 0;
    }
    at = next;
  }
  if (buffered) drop_behind(file.fd, request.begin, needed);
  return std::nullopt;
}

void Reader::State::fall_back(File& file, int code) {
  const std::lock_guard lock(mutex);
  if (!file.direct) return;  // another thread was quicker; its call and ours were made while reads were direct
  leave_direct(file.fd);
  file.why_buffered = "a direct read was refused: " + describe_errno(code);
  file.direct.store(false, std::memory_order_release);
}

size_t Reader::State::drop_queued(const std::shared_ptr<Job>& job) {
  size_t dropped = 0;
  for (auto* queue : {&urgent, &ahead}) dropped += std::erase_if(*queue, [&](const Request& request) { return request.job == job; });
  job->left -= dropped;
  return dropped;
}

const File& Reader::State::file(int number) const {
  if (number < 0 || static_cast<size_t>(number) >= files.size())
    throw std::invalid_argument("file: needed a number below " + std::to_string(files.size()) + ", found " + std::to_string(number));
  return files[static_cast<size_t>(number)];
}

const std::shared_ptr<Job>& Reader::State::job(Ticket ticket) const {
  const auto found = jobs.find(ticket);
  if (found == jobs.end()) throw std::invalid_argument("ticket: " + std::to_string(ticket) + " is not waited for (any more)");
  return found->second;
}

Reader::Reader(const ReaderOptions& options, std::shared_ptr<Source> source) : state_(new State), process_(this_process()) {
  if (options.threads < 1 || options.threads > 256)
    throw std::invalid_argument("threads: needed 1 to 256, found " + std::to_string(options.threads));
  if (options.request_bytes < kDefaultAlignment || options.request_bytes > kMostPerCall)
    throw std::invalid_argument("request_bytes: needed 4096 to 2^30, found " + std::to_string(options.request_bytes));
  State& s = *state_;
  s.options = options;
  s.source = source ? std::move(source) : std::make_shared<Source>();
  s.idle.reserve(options.threads);
  SignalsBlocked quiet;
  try {
    for (unsigned i = 0; i < options.threads; ++i) {
      Worker& worker = s.workers.emplace_back();
      s.threads.emplace_back([&s, &worker] { s.run(worker); });
    }
  } catch (const std::system_error& error) {
    const size_t started = s.threads.size();
    close();
    throw ThreadError("reading", options.threads, started, error.code().message());
  }
}

Reader::~Reader() {
  if (this_process() == process_)
    close();
  else
    state_.release();  // the threads are the parent's: nothing of them can be joined or unlocked here
}

Reader::State& Reader::state() const {
  if (this_process() != process_)
    throw std::runtime_error("this reader belongs to process " + std::to_string(process_) + " and has no threads in its child " +
                             std::to_string(this_process()) + ": open the model again after the fork");
  return *state_;
}

int Reader::add(const std::string& path, uint64_t size) {
  State& s = state();
  if (size > static_cast<uint64_t>(INT64_MAX) - kHugePage)
    throw std::invalid_argument("size: " + std::to_string(size) + " is beyond any file");
  OpenFile opened = open_for_reading(path, size, s.options.direct);
  const std::lock_guard lock(s.mutex);
  if (s.closing) {
    close_file(opened.fd);
    throw std::runtime_error("the reader is closed");
  }
  File& file = s.files.emplace_back();
  file.number = static_cast<int>(s.files.size() - 1);
  file.path = path;
  file.size = size;
  file.fd = opened.fd;
  file.alignment = s.source->alignment(opened.alignment);
  file.direct = opened.direct;
  file.why_buffered = std::move(opened.why_buffered);
  return file.number;
}

bool Reader::direct(int file) const {
  State& s = state();
  const std::lock_guard lock(s.mutex);
  return s.file(file).direct;
}

size_t Reader::alignment(int file) const {
  State& s = state();
  const std::lock_guard lock(s.mutex);
  return s.file(file).alignment;
}

std::vector<std::pair<std::string, std::string>> Reader::buffered() const {
  State& s = state();
  const std::lock_guard lock(s.mutex);
  std::vector<std::pair<std::string, std::string>> found;
  for (const File& file : s.files)
    if (!file.direct) found.emplace_back(file.path, file.why_buffered);
  return found;
}

Extent Reader::extent(int number, uint64_t offset, uint64_t nbytes) const {
  State& s = state();
  const std::lock_guard lock(s.mutex);
  const File& file = s.file(number);
  if (nbytes == 0) throw std::invalid_argument("nbytes: needed 1 or more, found 0");
  if (offset > file.size || nbytes > file.size - offset)
    throw std::invalid_argument(file.path + ": needed " + std::to_string(nbytes) + " bytes at offset " + std::to_string(offset) +
                                ", found a file of " + std::to_string(file.size));
  const uint64_t begin = round_down(offset, file.alignment);
  return {begin, round_up(offset + nbytes, file.alignment) - begin};
}

Ticket Reader::submit(int number, uint64_t offset, uint64_t nbytes, void* address, bool urgent) {
  State& s = state();
  const Extent range = extent(number, offset, nbytes);
  auto job = std::make_shared<Job>();
  job->urgent = urgent;
  job->arena = Arena::holding(address, range.length);
  if (!job->arena) throw std::invalid_argument("address: needed " + std::to_string(range.length) + " bytes inside one arena");
  const std::lock_guard lock(s.mutex);
  if (s.closing) throw std::runtime_error("the reader is closed");
  File& file = s.files[static_cast<size_t>(number)];
  if (reinterpret_cast<uintptr_t>(address) % file.alignment)
    throw std::invalid_argument("address: needed a multiple of " + std::to_string(file.alignment) + ", found " +
                                std::to_string(reinterpret_cast<uintptr_t>(address)));
  // Equal requests, so that the last is not a stub that comes late for its size.
  const uint64_t most = std::max<uint64_t>(round_down(s.options.request_bytes, file.alignment), file.alignment);
  const uint64_t count = (range.length + most - 1) / most;
  const uint64_t step = round_up((range.length + count - 1) / count, file.alignment);
  auto& queue = urgent ? s.urgent : s.ahead;
  for (uint64_t at = 0; at < range.length; at += step, ++job->left)
    queue.push_back({job, &file, range.begin + at, range.begin + std::min(at + step, range.length), static_cast<std::byte*>(address) + at});
  s.counted.bytes_asked += nbytes;
  const size_t requests = job->left;
  const Ticket ticket = s.next_ticket++;
  s.jobs.emplace(ticket, std::move(job));
  s.call(requests);
  return ticket;
}

bool Reader::ready(Ticket ticket) const {
  State& s = state();
  const std::lock_guard lock(s.mutex);
  return s.job(ticket)->left == 0;
}

bool Reader::wait(Ticket ticket, std::chrono::milliseconds limit) {
  State& s = state();
  std::unique_lock lock(s.mutex);
  const std::shared_ptr<Job> job = s.job(ticket);
  if (job->left > 0) {
    const auto start = Clock::now();
    job->changed.wait_until(lock, start + limit, [&] { return job->left == 0; });
    const double waited = seconds_since(start);
    job->waited += waited;
    s.counted.waited_s += waited;
  }
  return job->left == 0;
}

double Reader::take(Ticket ticket) {
  State& s = state();
  const std::lock_guard lock(s.mutex);
  const std::shared_ptr<Job> job = s.job(ticket);
  if (job->left > 0) throw std::invalid_argument("ticket: " + std::to_string(ticket) + " is still being read");
  s.jobs.erase(ticket);
  if (job->error) throw *job->error;
  if (job->dropped) throw std::runtime_error("the reader was closed before ticket " + std::to_string(ticket) + " was read");
  return job->waited;
}

void Reader::cancel(Ticket ticket) {
  State& s = state();
  std::unique_lock lock(s.mutex);
  const std::shared_ptr<Job> job = s.job(ticket);
  s.drop_queued(job);
  job->changed.wait(lock, [&] { return job->left == 0; });
  job->changed.notify_all();
  s.jobs.erase(ticket);
}

std::vector<Ticket> Reader::tickets(bool urgent) const {
  State& s = state();
  const std::lock_guard lock(s.mutex);
  std::vector<Ticket> found;
  for (const auto& [ticket, job] : s.jobs)
    if (job->urgent == urgent) found.push_back(ticket);
  return found;
}

void Reader::close() {
  State& s = state();
  const std::lock_guard one(s.closer);
  {
    const std::lock_guard lock(s.mutex);
    if (!s.closing) {
      s.closing = true;
      for (const auto& entry : s.jobs) entry.second->dropped |= s.drop_queued(entry.second) > 0;
    }
    s.call(s.workers.size());
  }
  s.source->stop();
  for (std::thread& thread : s.threads) thread.join();
  s.threads.clear();
  const std::lock_guard lock(s.mutex);
  for (File& file : s.files)
    if (file.fd >= 0) close_file(std::exchange(file.fd, -1));
  for (const auto& entry : s.jobs) {
    entry.second->arena.reset();
    entry.second->changed.notify_all();
  }
}

ReaderStats Reader::stats() const {
  State& s = state();
  const std::lock_guard lock(s.mutex);
  ReaderStats stats = s.counted;
  if (s.in_flight) stats.busy_s += seconds_since(s.busy_since);
  stats.queued = s.urgent.size() + s.ahead.size();
  for (const Worker& worker : s.workers) stats.cpu_s += worker.cpu;
  for (const File& file : s.files) stats.buffered_files += !file.direct;
  return stats;
}

}  // namespace lilliput
