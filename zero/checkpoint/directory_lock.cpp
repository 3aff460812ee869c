#include "zero/checkpoint/directory_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <string>
#include <utility>

#include "zero/base/error.h"
#include "zero/base/text.h"
#include "zero/checkpoint/checkpoint_directory.h"
#include "zero/checkpoint/generation.h"

namespace zero::checkpoint {
namespace {

constexpr const char* lock_name = ".lock";
constexpr std::string_view before_generation = ", generation ";

[[noreturn]] void refuse(const Directory& root, const std::string& problem) {
  throw SaveError(root.path() + ": " + problem);
}

Descriptor open_lock(const Directory& root, const std::string& name) {
  Descriptor lock(
      ::openat(root.descriptor(), name.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666));
  if (lock.get() < 0) refuse(root, "cannot be written to (" + name + "): " + std::strerror(errno));
  return lock;
}

bool lock_now(const Directory& root, const Descriptor& lock) {
  if (::flock(lock.get(), LOCK_EX | LOCK_NB) == 0) return true;
  if (errno != EWOULDBLOCK) refuse(root, std::string("cannot be locked: ") + std::strerror(errno));
  return false;
}

// Returns false if the file was replaced before the lock.
bool is_in_place(const Directory& root, const Descriptor& lock) {
  struct stat own {};
  struct stat there {};
  return ::fstat(lock.get(), &own) == 0 &&
         ::fstatat(root.descriptor(), lock_name, &there, AT_SYMLINK_NOFOLLOW) == 0 &&
         own.st_dev == there.st_dev && own.st_ino == there.st_ino;
}

std::string own_text() {
  const std::optional<Generation> own = own_generation();
  return host_name() + ", process " + std::to_string(::getpid()) +
         (own ? std::string(before_generation) + own->text() : "");
}

void write_text(const Descriptor& lock, const std::string& text) {
  const std::string line = text + "\n";
  if (::ftruncate(lock.get(), 0) != 0 ||
      ::pwrite(lock.get(), line.data(), line.size(), 0) != static_cast<ssize_t>(line.size())) {
    // Ignore the error: the text is only for messages and takeovers; the lock works without it.
  }
}

std::string holder_of(const Descriptor& lock) {
  std::array<char, 300> text{};
  const ssize_t got = ::pread(lock.get(), text.data(), text.size() - 1, 0);
  const std::string_view whole(text.data(), std::max<ssize_t>(got, 0));
  return std::string(trimmed(whole, "\n"));
}

bool is_of_older_generation(const std::string& holder) {
  const std::size_t at = holder.find(before_generation);
  const std::optional<Generation> own = own_generation();
  if (!own || at == std::string::npos) return false;
  const auto found =
      parse_generation(std::string_view(holder).substr(at + before_generation.size()));
  return found && found->is_older_than(*own);
}

// Replaces the lock file. The former holder's lock stays on the old file, which has no name now.
Descriptor take_over(const Directory& root) {
  const std::string temporary = ".tmp-lock-" + random_id();
  Descriptor lock = open_lock(root, temporary);
  if (!lock_now(root, lock)) refuse(root, "its new lock is held by another process");
  write_text(lock, own_text());
  root.replace(lock_name, temporary);
  return lock;
}

}  // namespace

Descriptor lock_directory(const Directory& root) {
  while (true) {
    Descriptor lock = open_lock(root, lock_name);
    if (!lock_now(root, lock)) {
      const std::string holder = holder_of(lock);
      if (is_of_older_generation(holder)) return take_over(root);
      if (holder == own_text())
        refuse(root,
               "another engine of this process saves here: give each engine a folder of its own");
      refuse(root, "another job saves here" + (holder.empty() ? "" : " (host " + holder + ")"));
    }
    if (!is_in_place(root, lock)) continue;
    write_text(lock, own_text());
    return lock;
  }
}

}  // namespace zero::checkpoint
