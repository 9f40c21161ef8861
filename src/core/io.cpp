#include "io.h"

#include <fcntl.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <system_error>

#if defined(__linux__)
#include <sys/vfs.h>
#endif

namespace lilliput {
namespace {

const char* errno_name(int code) {
  switch (code) {
#define LILLIPUT_ERRNO(name) \
  case name:                 \
    return #name;
    LILLIPUT_ERRNO(EACCES)
    LILLIPUT_ERRNO(EAGAIN)
    LILLIPUT_ERRNO(EBADF)
    LILLIPUT_ERRNO(EFAULT)
    LILLIPUT_ERRNO(EINTR)
    LILLIPUT_ERRNO(EINVAL)
    LILLIPUT_ERRNO(EIO)
    LILLIPUT_ERRNO(EISDIR)
    LILLIPUT_ERRNO(ELOOP)
    LILLIPUT_ERRNO(EMFILE)
    LILLIPUT_ERRNO(ENFILE)
    LILLIPUT_ERRNO(ENODATA)
    LILLIPUT_ERRNO(ENODEV)
    LILLIPUT_ERRNO(ENOENT)
    LILLIPUT_ERRNO(ENOMEM)
    LILLIPUT_ERRNO(ENOTCONN)
    LILLIPUT_ERRNO(ENOTDIR)
    LILLIPUT_ERRNO(ENXIO)
    LILLIPUT_ERRNO(EOVERFLOW)
    LILLIPUT_ERRNO(EPERM)
    LILLIPUT_ERRNO(ESTALE)
    LILLIPUT_ERRNO(ETIMEDOUT)
#undef LILLIPUT_ERRNO
    default:
      return nullptr;
  }
}

int open_retrying(const std::string& path, int flags) {
  int fd;
  do fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOCTTY | flags);
  while (fd < 0 && errno == EINTR);
  return fd;
}

#if defined(__linux__)

// Memory file systems take the flag and ignore it: what they hold is in the page cache already.
bool lives_in_memory(int fd) {
  constexpr unsigned long tmpfs = 0x01021994, ramfs = 0x858458f6;
  struct statfs found{};
  if (::fstatfs(fd, &found) != 0) return false;
  const auto type = static_cast<unsigned long>(found.f_type) & 0xffffffffUL;
  return type == tmpfs || type == ramfs;
}

// What the file system says it needs; 0 where it (or an older kernel) says nothing. Some that can read directly report zeros, so zero is
// no refusal: the first read decides.
size_t stated_alignment([[maybe_unused]] int fd) {
#if defined(STATX_DIOALIGN)
  struct statx found{};
  if (::statx(fd, "", AT_EMPTY_PATH, STATX_DIOALIGN, &found) != 0 || !(found.stx_mask & STATX_DIOALIGN)) return 0;
  return std::max<size_t>(found.stx_dio_mem_align, found.stx_dio_offset_align);
#else
  return 0;
#endif
}

OpenFile open_direct(const std::string& path) {
  OpenFile file;
  file.fd = open_retrying(path, O_DIRECT);
  if (file.fd < 0) {
    if (refuses_direct(errno)) file.why_buffered = "the file system refuses O_DIRECT";
    return file;
  }
  const size_t stated = stated_alignment(file.fd);
  if (lives_in_memory(file.fd)) {
    file.why_buffered = "it lives in memory";
  } else if (stated > kDefaultAlignment || (stated && !std::has_single_bit(stated))) {
    file.why_buffered = "O_DIRECT would need an alignment of " + std::to_string(stated) + " bytes";
  } else {
    file.direct = true;
    if (stated) file.alignment = stated;
    return file;
  }
  leave_direct(file.fd);
  return file;
}

#else  // macOS: no O_DIRECT; F_NOCACHE keeps a descriptor's reads out of the page cache

OpenFile open_direct(const std::string& path) {
  OpenFile file;
  file.fd = open_retrying(path, 0);
  if (file.fd < 0) return file;
  if (::fcntl(file.fd, F_NOCACHE, 1) == 0) {
    ::fcntl(file.fd, F_RDAHEAD, 0);
    file.direct = true;
  } else {
    file.why_buffered = "the file system refuses F_NOCACHE";
  }
  return file;
}

#endif

}  // namespace

std::string describe_errno(int code) {
  const char* name = errno_name(code);
  return (name ? std::string(name) : "error " + std::to_string(code)) + " (" + std::generic_category().message(code) + ")";
}

OpenFile open_for_reading(const std::string& path, uint64_t size, bool direct) {
  OpenFile file;
  if (direct) {
    file = open_direct(path);
  } else {
    file.why_buffered = "asked for";
  }
  if (file.fd < 0 && !file.why_buffered.empty()) file.fd = open_retrying(path, 0);
  if (file.fd < 0) {
    const int code = errno;
    throw ReadError(code, path, "cannot be opened: " + describe_errno(code));
  }
  struct stat found{};
  const int failed = ::fstat(file.fd, &found) ? errno : 0;
  const bool regular = !failed && S_ISREG(found.st_mode);
  if (regular && static_cast<uint64_t>(found.st_size) == size) return file;
  close_file(file.fd);
  if (failed) throw ReadError(failed, path, "cannot be examined: " + describe_errno(failed));
  if (!regular) throw std::invalid_argument(path + ": needed a regular file, found another kind");
  throw std::invalid_argument(path + ": needed " + std::to_string(size) + " bytes, found " + std::to_string(found.st_size));
}

void close_file(int fd) { ::close(fd); }

uint64_t file_size(int fd) {
  struct stat found{};
  return ::fstat(fd, &found) == 0 ? static_cast<uint64_t>(found.st_size) : 0;
}

bool refuses_direct(int code) { return code == EINVAL || code == ENOTSUP || code == EOPNOTSUPP; }

#if defined(__linux__)

void leave_direct(int fd) {
  const int flags = ::fcntl(fd, F_GETFL);
  if (flags >= 0) ::fcntl(fd, F_SETFL, flags & ~O_DIRECT);
}

void drop_behind(int fd, uint64_t begin, uint64_t end) {
  const uint64_t page = page_bytes(), first = begin / page * page;
  ::posix_fadvise(fd, static_cast<off_t>(first), static_cast<off_t>((end + page - 1) / page * page - first), POSIX_FADV_DONTNEED);
}

#else

void leave_direct(int fd) { ::fcntl(fd, F_NOCACHE, 0); }
void drop_behind(int, uint64_t, uint64_t) {}

#endif

size_t page_bytes() { return static_cast<size_t>(::sysconf(_SC_PAGESIZE)); }

void* map_memory(size_t nbytes, bool& huge) {
  huge = false;
  if (nbytes > SIZE_MAX - kHugePage) return nullptr;
  // Private: a shared anonymous mapping gets no huge pages. Trimmed to the pages asked for, so that a huge page can never make the process
  // larger than planned.
  void* mapped = ::mmap(nullptr, nbytes + kHugePage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapped == MAP_FAILED) return nullptr;
  auto* base = static_cast<char*>(mapped);
  const size_t before = (kHugePage - reinterpret_cast<uintptr_t>(base) % kHugePage) % kHugePage;
  if (before) ::munmap(base, before);
  if (kHugePage > before) ::munmap(base + before + nbytes, kHugePage - before);
  void* memory = base + before;
#if defined(MADV_HUGEPAGE)
  huge = nbytes >= kHugePage && ::madvise(memory, nbytes, MADV_HUGEPAGE) == 0;
#endif
#if defined(MADV_WIPEONFORK)
  // A fork while a direct read is in flight would make this memory copy-on-write under the device's hands, and the data could land in
  // the child's copy. Wiped memory is not shared with the child at all, and its page tables need no copying.
  ::madvise(memory, nbytes, MADV_WIPEONFORK);
#endif
  return memory;
}

void unmap_memory(void* memory, size_t nbytes) { ::munmap(memory, nbytes); }

void forget_memory(void* memory, size_t nbytes) {
  const size_t page = page_bytes();
  auto first = (reinterpret_cast<uintptr_t>(memory) + page - 1) / page * page;
  const auto last = (reinterpret_cast<uintptr_t>(memory) + nbytes) / page * page;
  if (last > first) ::madvise(reinterpret_cast<void*>(first), last - first, MADV_DONTNEED);
}

double thread_cpu_seconds() {
  timespec now{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

void name_this_thread(const char* name) {
#if defined(__linux__)
  ::pthread_setname_np(::pthread_self(), name);
#else
  ::pthread_setname_np(name);
#endif
}

long this_process() { return static_cast<long>(::getpid()); }

ThreadError::ThreadError(const std::string& what, size_t wanted, size_t started, const std::string& reason)
    : std::runtime_error(what + ": needed " + std::to_string(wanted) + " threads, and only " + std::to_string(started) + " could be had (" +
                         reason + "): use fewer (`--threads`), or raise the limit of processes or of address " +
                         "space (`ulimit -u`, `ulimit -v`, the container's number of processes)") {}

SignalsBlocked::SignalsBlocked() {
  sigset_t all;
  sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &saved_);
}

SignalsBlocked::~SignalsBlocked() { ::pthread_sigmask(SIG_SETMASK, &saved_, nullptr); }

}  // namespace lilliput
