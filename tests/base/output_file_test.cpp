// Files that a program writes: what may be there already, and what a failure leaves.
#include "zero/base/output_file.h"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <sstream>

using namespace zero;
namespace fs = std::filesystem;

namespace {

struct Folder {
  fs::path path;
  Folder() {
    std::string name = (fs::temp_directory_path() / "zero_output_XXXXXX").string();
    REQUIRE(mkdtemp(name.data()) != nullptr);
    path = name;
  }
  ~Folder() { fs::remove_all(path); }
};

std::string content(const fs::path& path) {
  std::stringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

mode_t mode_of(const fs::path& path) {
  struct stat status {};
  REQUIRE(lstat(path.c_str(), &status) == 0);
  return status.st_mode;
}

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace

TEST_CASE("only regular files are replaced") {
  const Folder folder;
  const fs::path fifo = folder.path / "fifo", file = folder.path / "file";
  REQUIRE(mkfifo(fifo.c_str(), 0600) == 0);
  CHECK(contains(replace_file(fifo, "x"), "it is a pipe"));
  CHECK(S_ISFIFO(mode_of(fifo)));
  CHECK(contains(replace_file(folder.path, "x"), "it is a directory"));
  CHECK(contains(replace_file("/dev/null", "x"), "it is a device"));
  CHECK(contains(replace_file(folder.path / "no" / "file", "x"), "No such file"));
  CHECK(replace_file(file, "one") == "");
  const fs::path link = folder.path / "link";
  fs::create_symlink("file", link);
  CHECK(replace_file(link, "two") == "");
  CHECK(content(file) == "two");
  CHECK(S_ISLNK(mode_of(link)));
  CHECK(std::distance(fs::directory_iterator(folder.path), {}) == 3);  // nothing is left over
}

TEST_CASE("new files are as the umask says, and replaced ones as they were") {
  const Folder folder;
  const fs::path file = folder.path / "file", log = folder.path / "log";
  const mode_t before = umask(027);
  CHECK(replace_file(file, "x") == "");
  CHECK(GrowingFile().open(log) == "");
  umask(before);
  CHECK((mode_of(file) & 0777) == 0640);
  CHECK((mode_of(log) & 0777) == 0640);
  fs::permissions(file, fs::perms(0604));
  CHECK(replace_file(file, "y") == "");
  CHECK((mode_of(file) & 0777) == 0604);
}

TEST_CASE("a file that cannot be written whole leaves the old one") {
  const Folder folder;
  const fs::path file = folder.path / "file";
  CHECK(replace_file(file, "old") == "");
  rlimit limit{};
  getrlimit(RLIMIT_FSIZE, &limit);
  const rlimit small{4096, limit.rlim_max};
  auto* const handler = std::signal(SIGXFSZ, SIG_IGN);
  setrlimit(RLIMIT_FSIZE, &small);
  const std::string problem = replace_file(file, std::string(1 << 16, 'x'));
  setrlimit(RLIMIT_FSIZE, &limit);
  std::signal(SIGXFSZ, handler);
  CHECK(contains(problem, "File too large"));
  CHECK(content(file) == "old");
  {
    ReplacedFile tried;
    CHECK(tried.open(file) == "");
    tried.write("new");
  }
  CHECK(content(file) == "old");
}

TEST_CASE("a log grows at a file, a device and a pipe with a reader, and waits for no reader") {
  const Folder folder;
  const fs::path fifo = folder.path / "fifo", file = folder.path / "file";
  std::ofstream(file) << "old ";
  GrowingFile log;
  CHECK(log.open(file) == "");
  CHECK(log.write("new") == "");
  CHECK(content(file) == "old new");
  CHECK(log.open(file, GrowingFile::Old::empty) == "");
  CHECK(content(file) == "");
  CHECK(log.open("/dev/full") == "");
  CHECK(contains(log.write("x"), "No space left"));
  REQUIRE(mkfifo(fifo.c_str(), 0600) == 0);
  CHECK(contains(log.open(fifo), "no process reads"));
  const int reader = open(fifo.c_str(), O_RDONLY | O_NONBLOCK);
  CHECK(log.open(fifo) == "");
  CHECK(log.write("record") == "");
  char text[16] = {};
  CHECK(read(reader, text, sizeof text) == 6);
  close(reader);
}
