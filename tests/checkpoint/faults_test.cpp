// Saves that fail: every rank throws the same message, the previous checkpoint is untouched, no
// files are left, and the run can continue.
#include <doctest/doctest.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <functional>
#include <mutex>
#include <set>
#include <string>

#include "tests/checkpoint/engine_support.h"
#include "tests/support/refusal.h"
#include "tests/support/stderr_of.h"
#include "tests/support/temporary_directory.h"
#include "zero/checkpoint/checkpoint_reader.h"
#include "zero/checkpoint/directory_writer.h"
#include "zero/checkpoint/posix_files.h"

namespace {

namespace fs = std::filesystem;
using zero::SaveError;
using zero::checkpoint::DirectoryWriter;
using zero::checkpoint::FileEvent;
using zero::checkpoint::FileOp;
using zero::tests::config_of;
using zero::tests::contains;
using zero::tests::refusal;
using zero::tests::strategies;
using zero::tests::TemporaryDirectory;
using zero::tests::train_until;
using zero::tests::with_engine;

std::set<std::string> names_in(const std::string& root) {
  std::set<std::string> names;
  for (const auto& entry : fs::directory_iterator(root)) names.insert(entry.path().filename());
  return names;
}

void verify(const std::string& root, const std::string& tag) {
  zero::checkpoint::CheckpointReader(root + "/" + tag).verify();
}

// Runs the body in a process of its own, since it may change the process's permissions; returns its
// result.
bool in_child(const std::function<bool()>& body) {
  std::fflush(nullptr);
  const pid_t child = ::fork();
  if (child == 0) {
    bool good = false;
    try {
      good = body();
    } catch (const std::exception& error) {
      std::fprintf(stderr, "%s\n", error.what());
    }
    ::_exit(good ? 0 : 1);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

// Returns the error of a save by two ranks after a good checkpoint; "" if it succeeded. Checks that
// the run can save afterwards.
std::string save_under(const std::string& root, const std::function<void(bool on)>& fault,
                       const zero::SaveOptions& options = {"second"}) {
  std::string words;
  bool alike = true;
  with_engine(2, config_of(strategies[3], true), [&](zero::Runtime& runtime, zero::Engine& engine) {
    engine.initialize(toy::fill);
    const std::uint64_t before = train_until(runtime, engine, 1).digest;
    engine.save_checkpoint(root, {"first"}).wait();
    runtime.sum(0);
    if (runtime.is_root()) fault(true);
    runtime.sum(0);
    const std::string own =
        refusal<SaveError>([&] { engine.save_checkpoint(root, options).wait(); });
    runtime.sum(0);
    if (runtime.is_root()) {
      fault(false);
      words = own;
    }
    runtime.sum(0);
    if (own != words) alike = false;
    CHECK(engine.digest() == before);
    engine.save_checkpoint(root, {"third"}).wait();
  });
  CHECK(alike);
  return words;
}

}  // namespace

TEST_CASE("any operation of a save may fail") {
  for (const int error : {ENOSPC, EIO}) {
    bool came_that_far = true;
    int refused = 0;
    for (int count = 0; came_that_far; ++count) {
      const TemporaryDirectory directory;
      const std::string root = directory / "root";
      std::atomic<int> left{0};
      std::atomic<bool> failed{false};
      FileOp op{};
      std::string path;
      const std::string words = save_under(root, [&](bool on) {
        left = count;
        zero::checkpoint::set_file_hook({});
        if (on)
          zero::checkpoint::set_file_hook([&](const FileEvent& event) {
            if (left-- != 0) return 0;
            failed = true;
            op = event.op;
            path = event.path;
            return error;
          });
      });
      came_that_far = failed;
      CAPTURE(count);
      CAPTURE(static_cast<int>(op));
      CAPTURE(path);
      CAPTURE(words);
      if (words.empty()) {
        // These may fail, since `latest` and removing old files come after the commit.
        verify(root, "second");
        if (failed)
          CHECK((op == FileOp::read || contains(path, "latest") || op == FileOp::remove ||
                 path == root));
      } else {
        ++refused;
        CHECK(contains(words, std::strerror(error)));
        CHECK(contains(words, root));
        CHECK(!fs::exists(root + "/second"));
      }
      verify(root, "first");
      verify(root, "third");
      for (const std::string& name : names_in(root)) CHECK(!name.starts_with(".tmp"));
    }
    CHECK(refused > 20);
  }
}

TEST_CASE("any operation of a save that replaces a checkpoint may fail") {
  bool came_that_far = true;
  int refused = 0;
  for (int count = 0; came_that_far; ++count) {
    const TemporaryDirectory directory;
    const std::string root = directory / "root";
    std::atomic<int> left{count};
    FileOp op{};
    came_that_far = false;
    const zero::checkpoint::FileHook fail = [&](const FileEvent& event) {
      if (left-- != 0) return 0;
      came_that_far = true;
      op = event.op;
      return EIO;
    };
    const std::string words =
        save_under(root, [&](bool on) { zero::checkpoint::set_file_hook(on ? fail : nullptr); },
                   {.tag = "first", .replace = true});
    CAPTURE(count);
    CAPTURE(words);
    if (!words.empty()) ++refused;
    verify(root, "first");
    const auto saved = zero::list_checkpoints(root);
    REQUIRE(saved.size() == 2);
    CHECK(saved[1].tag == "first");
    CHECK((saved[1].sequence == 1) == !words.empty());
    // A checkpoint that cannot be read when the save begins is kept.
    const bool unreadable = op == FileOp::read;
    for (const std::string& name : names_in(root))
      CHECK((name == "latest" || name == ".lock" || name == "first" || name == "third" ||
             (unreadable && name == ".trash-set-aside-first")));
  }
  CHECK(refused > 20);
}

TEST_CASE("short writes are completed") {
  const TemporaryDirectory directory;
  const std::string root = directory / "root";
  const std::string words = save_under(root, [&](bool on) {
    zero::checkpoint::set_file_hook({});
    if (on)
      zero::checkpoint::set_file_hook(
          [](const FileEvent& event) { return event.op == FileOp::write ? -1 : 0; });
  });
  CHECK(words == "");
  verify(root, "second");
}

TEST_CASE("a save that finds no memory is a save that failed, and training can go on") {
  for (const char* point : {".tmp-sign-", ".safetensors"}) {
    CAPTURE(point);
    const TemporaryDirectory directory;
    const std::string root = directory / "root";
    zero::Config config = config_of(strategies[3], true);
    config.zero_core.on_save_error = "continue";
    const auto set_hook = [&](zero::Runtime& runtime, const zero::checkpoint::FileHook& hook) {
      runtime.sum(0);
      if (runtime.is_root()) zero::checkpoint::set_file_hook(hook);
      runtime.sum(0);
    };
    with_engine(2, config, [&](zero::Runtime& runtime, zero::Engine& engine) {
      engine.initialize(toy::fill);
      set_hook(runtime, [point](const FileEvent& event) -> int {
        if (contains(event.path, point)) throw std::bad_alloc();
        return 0;
      });
      CHECK_FALSE(engine.save_checkpoint(root).wait());
      set_hook(runtime, {});
      train_until(runtime, engine, 1);
      CHECK(engine.save_checkpoint(root).wait());
    });
    verify(root, "step-1");
  }
}

TEST_CASE("a directory that vanishes while a save writes is a save that failed") {
  const TemporaryDirectory directory;
  const std::string root = directory / "root", elsewhere = directory / "elsewhere";
  const std::string words = save_under(root, [&](bool on) {
    if (on)
      fs::rename(root, elsewhere);
    else
      fs::rename(elsewhere, root);
  });
  CHECK(contains(words, "rank 0: " + root + ": cannot be read: No such file or directory"));
  CHECK(contains(words, "was removed or unmounted meanwhile"));
  verify(root, "first");
  verify(root, "third");
  CHECK(!fs::exists(root + "/second"));
}

TEST_CASE("a limit on open files is a save that failed, and training may go on") {
  // Sets the limit so that `more` further descriptors can be opened.
  const auto limit_to = [](int more) {
    rlimit limit{};
    ::getrlimit(RLIMIT_NOFILE, &limit);
    const int next = ::dup(0);
    ::close(next);
    limit.rlim_cur = static_cast<rlim_t>(next + more);
    ::setrlimit(RLIMIT_NOFILE, &limit);
  };
  // A save fails with these, because a writer needs two at a time.
  for (const int more : {0, 1}) {
    CAPTURE(more);
    const TemporaryDirectory directory;
    const std::string root = directory / "root";
    CHECK(in_child([&] {
      rlimit old{};
      ::getrlimit(RLIMIT_NOFILE, &old);
      const std::string words = save_under(root, [&](bool on) {
        if (on)
          limit_to(more);
        else
          ::setrlimit(RLIMIT_NOFILE, &old);
      });
      return contains(words, "Too many open files") && contains(words, root);
    }));
    verify(root, "third");
  }
}

TEST_CASE("a limit on file sizes") {
  const TemporaryDirectory directory;
  const std::string root = directory / "root";
  CHECK(in_child([&] {
    ::signal(SIGXFSZ, SIG_IGN);
    rlimit old{};
    ::getrlimit(RLIMIT_FSIZE, &old);
    const std::string words = save_under(root, [&](bool on) {
      rlimit limit = old;
      if (on) limit.rlim_cur = 10'000;
      ::setrlimit(RLIMIT_FSIZE, &limit);
    });
    return contains(words, "File too large") && contains(words, ".safetensors");
  }));
  verify(root, "third");
}

TEST_CASE("a full file system is noticed before anything is written") {
  const TemporaryDirectory directory;
  bool mounted = false;
  const bool good = in_child([&] {
    const std::string small = directory / "small";
    fs::create_directory(small);
    if (::unshare(CLONE_NEWNS) != 0 ||
        ::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
        ::mount("tmpfs", small.c_str(), "tmpfs", 0, "size=2m") != 0)
      return true;  // not permitted here
    directory.file("mounted", "");
    std::string words = save_under(small + "/root", [&](bool on) {
      fs::remove(small + "/ballast");
      if (on) std::ofstream(small + "/ballast") << std::string(1'200'000, 'x');
    });
    if (!contains(words, "the file system has")) return false;
    // Without the check at the beginning, the reservation or the write fails.
    fs::remove_all(small + "/root");
    words = save_under(small + "/root", [&](bool on) {
      zero::checkpoint::set_file_hook({});
      fs::remove(small + "/ballast");
      if (on)
        zero::checkpoint::set_file_hook([&](const FileEvent& event) {
          if (event.op == FileOp::create && !fs::exists(small + "/ballast"))
            std::ofstream(small + "/ballast") << std::string(4'000'000, 'x');
          return 0;
        });
    });
    return contains(words, "No space left on device") && !fs::exists(small + "/root/second");
  });
  CHECK(good);
  mounted = fs::exists(directory / "mounted");
  WARN_MESSAGE(mounted, "no tmpfs could be mounted: nothing was tried");
}

TEST_CASE("directories that cannot be written to") {
  const TemporaryDirectory directory;
  directory.file("file", "x");
  fs::create_directory(directory / "real");
  fs::create_symlink(directory / "real", directory / "link");
  CHECK(contains(refusal<SaveError>([&] { DirectoryWriter(directory / "file"); }),
                 "Not a directory"));
  CHECK(contains(refusal<SaveError>([&] { DirectoryWriter(directory / "file/below"); }),
                 "cannot be made"));
  CHECK(contains(refusal<SaveError>([&] { DirectoryWriter(directory / "link"); }),
                 "is a symbolic link"));
  CHECK(contains(refusal<SaveError>([&] { DirectoryWriter(directory / std::string(300, 'x')); }),
                 "too long"));
  fs::create_directory(directory / "locked");
  fs::permissions(directory / "locked", fs::perms::owner_read | fs::perms::owner_exec |
                                            fs::perms::others_read | fs::perms::others_exec);
  fs::permissions(directory.path(), fs::perms::others_exec, fs::perm_options::add);
  CHECK(in_child([&] {
    if (::geteuid() == 0 && ::setuid(65534) != 0) return true;
    return contains(refusal<SaveError>([&] { DirectoryWriter(directory / "locked"); }),
                    "Permission denied");
  }));
  // A link in place of the lock is not followed.
  fs::create_symlink(directory / "file", directory / "real/.lock");
  CHECK(refusal<SaveError>([&] { DirectoryWriter(directory / "real"); }) != "");
  CHECK(zero::tests::read_text(directory / "file") == "x");
  // DeepSpeed's directory must not be written to.
  fs::create_directories(directory / "ds/global_step10");
  directory.file("ds/global_step10/mp_rank_00_model_states.pt", "PK");
  CHECK(contains(refusal<SaveError>([&] { DirectoryWriter(directory / "ds").next_sequence(); }),
                 "DeepSpeed"));
}

TEST_CASE("two jobs do not save to one directory") {
  const TemporaryDirectory directory;
  const std::string root = directory / "root";
  {
    const DirectoryWriter first(root);
    CHECK(contains(refusal<SaveError>([&] { DirectoryWriter second(root); }),
                   "another engine of this process saves here: give each engine a folder"));
    directory.file("root/.lock", "elsewhere, process 17\n");
    CHECK(contains(refusal<SaveError>([&] { DirectoryWriter second(root); }),
                   "another job saves here (host elsewhere, process 17)"));
  }
  CHECK(refusal<SaveError>([&] { DirectoryWriter second(root); }) == "");
}

TEST_CASE("retention keeps the newest valid checkpoints, and those that were set aside") {
  const TemporaryDirectory directory;
  const std::string root = directory / "root";
  with_engine(2, config_of(strategies[1], false),
              [&](zero::Runtime& runtime, zero::Engine& engine) {
                engine.initialize(toy::fill);
                for (int i = 1; i <= 5; ++i)
                  engine.save_checkpoint(root, {.tag = "t" + std::to_string(i), .keep = 3}).wait();
                if (!runtime.is_root()) return;
                CHECK(names_in(root) == std::set<std::string>{".lock", "latest", "t3", "t4", "t5"});
              });
  // A damaged checkpoint is not counted, and left alone.
  fs::remove(root + "/t4/manifest.xxh3");
  CHECK(contains(zero::list_checkpoints(root).at(1).tag, "t3"));
  CHECK(zero::list_checkpoints(root).at(2).sequence == 0);
  with_engine(
      2, config_of(strategies[1], false), [&](zero::Runtime& runtime, zero::Engine& engine) {
        CHECK(engine.resume(root, zero::Resume::must_exist, "t3"));
        runtime.sum(0);
        if (runtime.is_root()) CHECK(zero::set_aside_checkpoints(root, 3).size() == 2);
        runtime.sum(0);
        engine.save_checkpoint(root, {.tag = "t4", .keep = 2}).wait();
        engine.save_checkpoint(root, {.tag = "t6", .keep = 2}).wait();
        if (!runtime.is_root()) return;
        CHECK(names_in(root) == std::set<std::string>{".lock", ".trash-set-aside-t4",
                                                      ".trash-set-aside-t5", "latest", "t4", "t6"});
      });
}

TEST_CASE("a checkpoint that is retired during a read is left out, or named") {
  const TemporaryDirectory directory;
  const std::string saved = directory / "saved", root = directory / "root";
  with_engine(2, config_of(strategies[1], false), [&](zero::Runtime&, zero::Engine& engine) {
    engine.initialize(toy::fill);
    for (const char* tag : {"t1", "t2", "t3"}) engine.save_checkpoint(saved, {tag}).wait();
  });
  // Retires t3 when its file is read; with `all` retires t1 too, and only then creates t2.
  const auto retire_at = [&](const std::string& file, bool all = false) {
    zero::checkpoint::set_file_hook({});
    fs::remove_all(root);
    fs::copy(saved, root, fs::copy_options::recursive);
    if (all) fs::rename(root + "/t2", directory / "t2");
    zero::checkpoint::set_file_hook([&, file, all](const FileEvent& event) {
      if (event.op != FileOp::read || !contains(event.path, "/t3/" + file)) return 0;
      fs::remove_all(root + "/t3");
      if (all) fs::remove_all(root + "/t1");
      if (all) fs::rename(directory / "t2", root + "/t2");
      return 0;
    });
  };
  retire_at("manifest.json");
  CHECK(zero::list_checkpoints(root).size() == 2);
  // Only one is kept, since the newer one is not in the first listing.
  retire_at("manifest.json", true);
  REQUIRE(zero::list_checkpoints(root).size() == 1);
  CHECK(zero::list_checkpoints(root).front().tag == "t2");
  retire_at("manifest.json");
  CHECK(contains(refusal<zero::LoadError>([&] { zero::checkpoint::choose(root, "t3"); }),
                 "/t3: was retired while it was being read"));
  retire_at("shard-00001");
  CHECK(contains(refusal<zero::LoadError>([&] { verify(root, "t3"); }),
                 "/t3: was retired while it was being read"));

  for (const std::string tag : {"", "t3"}) {
    CAPTURE(tag);
    retire_at("shard-00001");
    std::string taken, words;
    const std::string notices = zero::tests::stderr_of([&] {
      with_engine(1, config_of(strategies[1], false), [&](zero::Runtime&, zero::Engine& engine) {
        words = refusal<zero::LoadError>(
            [&] { taken = engine.resume(root, zero::Resume::if_any, tag)->tag; });
      });
    });
    const bool named = !tag.empty();
    CHECK(taken == (named ? "" : "t2"));
    CHECK(contains(words, "/t3: was retired while it was being read") == named);
    CHECK(contains(notices, "taking the newest that is left") == !named);
  }
  zero::checkpoint::set_file_hook({});
}

TEST_CASE("a checkpoint that is replaced during a read is read again, or named") {
  const TemporaryDirectory directory;
  const std::string saved = directory / "saved", newer = directory / "newer",
                    root = directory / "root";
  with_engine(2, config_of(strategies[1], false),
              [&](zero::Runtime& runtime, zero::Engine& engine) {
                engine.initialize(toy::fill);
                engine.save_checkpoint(saved, {.tag = "t"}).wait();
                train_until(runtime, engine, 1);
                engine.save_checkpoint(newer, {.tag = "t"}).wait();
              });
  const auto replace_at = [&](const std::string& file) {
    zero::checkpoint::set_file_hook({});
    fs::remove_all(root);
    fs::copy(saved, root, fs::copy_options::recursive);
    zero::checkpoint::set_file_hook([&, file, done = false](const FileEvent& event) mutable {
      if (done || event.op != FileOp::read || !contains(event.path, "/t/" + file)) return 0;
      done = true;
      fs::rename(root + "/t", root + "/.replaced-t");
      fs::copy(newer + "/t", root + "/t", fs::copy_options::recursive);
      fs::remove_all(root + "/.replaced-t");
      return 0;
    });
  };
  replace_at("manifest.json");
  REQUIRE(zero::list_checkpoints(root).size() == 1);
  CHECK(zero::list_checkpoints(root).front().step == 1);
  replace_at("shard-00001");
  CHECK(contains(refusal<zero::LoadError>([&] { verify(root, "t"); }),
                 "/t: was replaced while it was being read"));
  replace_at("shard-00001");
  with_engine(1, config_of(strategies[1], false),
              [&](zero::Runtime&, zero::Engine& engine) { CHECK(engine.resume(root)->step == 1); });
  zero::checkpoint::set_file_hook({});
}

TEST_CASE("reading fails with the same error on all ranks") {
  const TemporaryDirectory directory;
  const std::string root = directory / "root";
  with_engine(3, config_of(strategies[2], true), [&](zero::Runtime& runtime, zero::Engine& engine) {
    engine.initialize(toy::fill);
    engine.save_checkpoint(root, {"a"}).wait();
    const std::uint64_t before = train_until(runtime, engine, 1).digest;
    runtime.sum(0);
    if (runtime.is_root())
      zero::checkpoint::set_file_hook([](const FileEvent& event) {
        return event.op == FileOp::read && contains(event.path, "00003-of") ? EIO : 0;
      });
    runtime.sum(0);
    std::string words;
    try {
      engine.resume(root);
    } catch (const zero::LoadError& error) {
      words = error.what();
    }
    runtime.sum(0);
    if (runtime.is_root()) zero::checkpoint::set_file_hook({});
    runtime.sum(0);
    CHECK(contains(words, "rank 2"));
    CHECK(contains(words, "Input/output error"));
    CHECK(engine.digest() == before);
    CHECK(engine.resume(root)->tag == "a");
  });
}
