#include "zero/checkpoint/atomic_file.h"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <csignal>

#include "tests/support/temporary_directory.h"
#include "zero/base/error.h"

using namespace zero;
using zero::checkpoint::AtomicFile;
using zero::tests::read_text;
using zero::tests::TemporaryDirectory;

namespace {

std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text));
}

std::size_t files_in(const TemporaryDirectory& directory) {
  return static_cast<std::size_t>(
      std::distance(std::filesystem::directory_iterator(directory.path()), {}));
}

template <class Action>
std::string failure(Action action) {
  try {
    action();
  } catch (const SaveError& error) {
    CHECK(error.exit_code() == 14);
    return error.what();
  }
  return "";
}

}  // namespace

TEST_CASE("the file appears with commit, and replaces an old one whole") {
  const TemporaryDirectory directory;
  const std::string path = directory.file("x", "old and longer");
  AtomicFile file(path);
  file.write(bytes_of("ne"));
  file.write(bytes_of("w"));
  CHECK(read_text(path) == "old and longer");
  file.commit();
  CHECK(read_text(path) == "new");
  CHECK(files_in(directory) == 1);
  CHECK_FALSE(failure([&] { file.write(bytes_of("more")); }).empty());
  CHECK_FALSE(failure([&] { file.commit(); }).empty());
}

TEST_CASE("without commit nothing remains") {
  const TemporaryDirectory directory;
  { AtomicFile(directory / "x").write(bytes_of("text")); }
  CHECK(files_in(directory) == 0);
}

TEST_CASE("two writers of one name do not mix; a temporary file of somebody else is left alone") {
  const TemporaryDirectory directory;
  const std::string path = directory / "x";
  const std::string stale = directory.file("x.tmp-" + std::to_string(::getpid()) + "-0", "stale");
  AtomicFile first(path), second(path);
  first.write(bytes_of("first"));
  second.write(bytes_of("second"));
  second.commit();
  CHECK(read_text(path) == "second");
  first.commit();
  CHECK(read_text(path) == "first");
  CHECK(read_text(stale) == "stale");
}

TEST_CASE("what cannot be written: path and reason") {
  const TemporaryDirectory directory;
  const auto create = [](const std::string& path) {
    return failure([&] { AtomicFile file(path); });
  };
  const std::string missing = create(directory / "none/x");
  CHECK(missing.starts_with(directory / "none/x"));
  CHECK(missing.ends_with("No such file or directory"));
  CHECK(create(directory.path().string()).ends_with("exists and is not a regular file"));
  CHECK(create(directory.file("file", "") + "/x").ends_with("Not a directory"));
  CHECK(create("/dev/null").ends_with("exists and is not a regular file"));
  CHECK(create(directory / std::string(300, 'x')).ends_with("File name too long"));
}

TEST_CASE("a failing write removes the temporary file and keeps the old one") {
  const TemporaryDirectory directory;
  const std::string path = directory.file("x", "old");
  rlimit old_limit{};
  REQUIRE(::getrlimit(RLIMIT_FSIZE, &old_limit) == 0);
  const auto old_handler = std::signal(SIGXFSZ, SIG_IGN);
  {
    AtomicFile file(path);
    const rlimit limit{100, old_limit.rlim_max};
    REQUIRE(::setrlimit(RLIMIT_FSIZE, &limit) == 0);
    const std::string message = failure([&] { file.write(bytes_of(std::string(200, 'x'))); });
    REQUIRE(::setrlimit(RLIMIT_FSIZE, &old_limit) == 0);
    CHECK(message == path + ": cannot write: File too large");
    CHECK(files_in(directory) == 1);
    CHECK_FALSE(failure([&] { file.commit(); }).empty());
  }
  std::signal(SIGXFSZ, old_handler);
  CHECK(read_text(path) == "old");
}
