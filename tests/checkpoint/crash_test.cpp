// If a save is cut off anywhere, the directory loads as the previous checkpoint or as the new one,
// complete. Tested by ending the process before each system call of the save, and by building, from
// a record of those calls, the states that a power loss may leave on a disk.
#include <doctest/doctest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "tests/checkpoint/engine_support.h"
#include "tests/support/sweep.h"
#include "tests/support/temporary_directory.h"
#include "zero/checkpoint/checkpoint_directory.h"
#include "zero/checkpoint/checkpoint_reader.h"
#include "zero/checkpoint/posix_files.h"

namespace {

namespace fs = std::filesystem;
using zero::checkpoint::FileEvent;
using zero::checkpoint::FileOp;
using zero::tests::config_of;
using zero::tests::read_text;
using zero::tests::strategies;
using zero::tests::TemporaryDirectory;
using zero::tests::train_until;
using zero::tests::with_engine;

constexpr int killed = 99;

// Trains two ranks from `from` steps (0: initial values) to `to` and saves.
void train_and_save(const std::string& root, int from, int to, const zero::SaveOptions& options,
                    bool hooked, const zero::checkpoint::FileHook& hook = {}) {
  with_engine(2, config_of(strategies[2], true), [&](zero::Runtime& runtime, zero::Engine& engine) {
    if (from == 0)
      engine.initialize(toy::fill);
    else
      engine.resume(root);
    train_until(runtime, engine, to);
    runtime.sum(0);
    if (runtime.is_root() && hooked) zero::checkpoint::set_file_hook(hook);
    runtime.sum(0);
    engine.save_checkpoint(root, options).wait();
    runtime.sum(0);
    if (runtime.is_root() && hooked) zero::checkpoint::set_file_hook({});
    runtime.sum(0);
  });
}

// A root with step-1, and the files of step-2 from an undisturbed save; and a root with step 1
// under a tag that is going to be replaced.
struct Setting {
  Setting() {
    train_and_save(directory / "old", 0, 1, {}, false);
    fs::copy(directory / "old", directory / "new", fs::copy_options::recursive);
    train_and_save(directory / "new", 1, 2, {}, false);
    train_and_save(directory / "same", 0, 1, {.tag = "same"}, false);
  }
  TemporaryDirectory directory;
};

const Setting& setting() {
  static const Setting instance;
  return instance;
}

// Returns the data of all shards without headers, since these hold the save id, which differs from
// save to save.
std::string data_of(const std::string& root, const std::string& name) {
  zero::checkpoint::CheckpointReader reader(root + "/" + name);
  reader.verify();
  std::string data;
  for (std::size_t i = 0; i < reader.shards().size(); ++i)
    data += read_text(root + "/" + name + "/" + reader.manifest().files[i].name)
                .substr(static_cast<std::size_t>(reader.shards()[i].header_bytes));
  return data;
}

// Returns the step from which a start would resume, after checking that it is complete and has the
// right bits.
std::string loads(const std::string& root) {
  const auto choice = zero::checkpoint::choose(root, "");
  if (!choice) return "nothing";
  const std::string tag = choice->candidate.tag;
  const std::string step = "step-" + std::to_string(choice->candidate.manifest->step);
  static const std::map<std::string, std::string> expected = {
      {"step-1", data_of(setting().directory / "old", "step-1")},
      {"step-2", data_of(setting().directory / "new", "step-2")}};
  if ((tag != step && tag != "same") || !expected.contains(step) ||
      data_of(root, choice->candidate.directory) != expected.at(step))
    return "a mixture";
  return step;
}

// Ends the process before file operation number `count`; returns whether the save came that far.
bool save_killed_at(const std::string& root, const zero::SaveOptions& options, int count) {
  std::fflush(nullptr);
  const pid_t child = ::fork();
  if (child == 0) {
    std::atomic<int> left{count};
    try {
      train_and_save(root, 1, 2, options, true, [&](const FileEvent&) {
        if (left-- == 0) ::_exit(killed);
        return 0;
      });
    } catch (...) {
      ::_exit(1);
    }
    ::_exit(0);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  REQUIRE(WIFEXITED(status));
  REQUIRE((WEXITSTATUS(status) == 0 || WEXITSTATUS(status) == killed));
  return WEXITSTATUS(status) == killed;
}

// ---- a disk that may lose data that was not synced ------------------------------------------

struct Inode {
  bool directory = false;
  std::string content, synced;
  bool clean = true;  // all of the content is synced
};
using Node = std::shared_ptr<Inode>;

struct NameChange {
  enum class Kind { add, rename, remove } kind;
  std::string path, target;
  Node node;
};

class Disk {
 public:
  explicit Disk(const std::string& root) : root_(root) {
    for (const auto& entry : fs::recursive_directory_iterator(root)) {
      auto node = std::make_shared<Inode>();
      node->directory = entry.is_directory();
      if (!node->directory) node->content = node->synced = read_text(entry.path().string());
      durable_[entry.path().string().substr(root.size())] = node;
    }
    current_ = durable_;
  }

  void apply(FileOp op, std::string path, std::string target, const std::string& data) {
    path = path.substr(root_.size());
    if (!target.empty()) target = target.substr(root_.size());
    switch (op) {
      case FileOp::make_directory:
      case FileOp::create: {
        auto node = std::make_shared<Inode>();
        node->directory = op == FileOp::make_directory;
        change({NameChange::Kind::add, path, "", node});
        return;
      }
      case FileOp::write:
        current_.at(path)->content += data;
        current_.at(path)->clean = false;
        return;
      case FileOp::sync:
        current_.at(path)->synced = current_.at(path)->content;
        current_.at(path)->clean = true;
        return;
      case FileOp::rename:
        change({NameChange::Kind::rename, path, target, nullptr});
        return;
      case FileOp::remove:
        change({NameChange::Kind::remove, path, "", nullptr});
        return;
      case FileOp::sync_directory:
        sync_names(path);
        return;
      default:
        return;
    }
  }

  std::size_t pending() const { return pending_.size(); }

  enum class Data { all, none, zeros, half };

  // Writes the first `names` of the pending changes of names, except number `without`.
  void write_to(const std::string& root, std::size_t names, std::size_t without, Data data) const {
    auto tree = durable_;
    for (std::size_t i = 0; i < names; ++i)
      if (i != without) run(tree, pending_[i]);
    fs::remove_all(root);
    fs::create_directories(root);
    for (const auto& [path, node] : tree) {
      // A file does not exist if its directory does not.
      if (!fs::is_directory(fs::path(root + path).parent_path())) continue;
      if (node->directory)
        fs::create_directory(root + path);
      else
        std::ofstream(root + path, std::ios::binary) << left_of(*node, data);
    }
  }

 private:
  using Tree = std::map<std::string, Node>;

  static std::string left_of(const Inode& node, Data data) {
    if (node.clean || data == Data::all) return node.content;
    if (data == Data::none) return node.synced;
    if (data == Data::zeros) return std::string(node.content.size(), '\0');
    return node.content.substr(0, node.content.size() / 2);
  }

  static void run(Tree& tree, const NameChange& change) {
    if (change.kind == NameChange::Kind::add) {
      tree[change.path] = change.node;
      return;
    }
    Tree moved;
    for (auto it = tree.begin(); it != tree.end();) {
      const bool inside = it->first == change.path || it->first.starts_with(change.path + "/");
      if (inside) moved[change.target + it->first.substr(change.path.size())] = it->second;
      it = inside ? tree.erase(it) : std::next(it);
    }
    if (change.kind == NameChange::Kind::rename)
      for (auto& [path, node] : moved) tree[path] = node;
  }

  void change(NameChange change) {
    run(current_, change);
    pending_.push_back(std::move(change));
  }

  // Syncs the names in this directory, and earlier changes that they depend on.
  void sync_names(const std::string& directory) {
    std::size_t last = 0;
    for (std::size_t i = 0; i < pending_.size(); ++i)
      if (parent(pending_[i].path) == directory) last = i + 1;
    for (std::size_t i = 0; i < last; ++i) run(durable_, pending_[i]);
    pending_.erase(pending_.begin(), pending_.begin() + static_cast<std::ptrdiff_t>(last));
  }

  static std::string parent(const std::string& path) { return path.substr(0, path.rfind('/')); }

  std::string root_;
  Tree durable_, current_;
  std::vector<NameChange> pending_;
};

struct Recorded {
  FileOp op;
  std::string path, target, data;
};

// Operations on files named `failing` fail, if it is not empty.
std::vector<Recorded> record_save(const std::string& root, const zero::SaveOptions& options,
                                  const std::string& failing = "") {
  std::vector<Recorded> record;
  std::mutex mutex;
  train_and_save(root, 1, 2, options, true, [&](const FileEvent& event) {
    if (event.op == FileOp::read) return 0;
    if (!failing.empty() && event.path.ends_with("/" + failing)) return ENOSPC;
    const std::lock_guard lock(mutex);
    record.push_back(
        {event.op, event.path, event.target,
         std::string(reinterpret_cast<const char*>(event.data.data()), event.data.size())});
    return 0;
  });
  return record;
}

// Saves step 2 over step 1 in a copy of the folder: each state in which the process may die must
// load as one of the two, and the next start must remove the remains and save.
void check_kills(const std::string& folder, const zero::SaveOptions& options) {
  std::map<std::string, int> outcomes;
  bool came_that_far = true;
  for (int count = 0; came_that_far; ++count) {
    const TemporaryDirectory directory;
    const std::string root = directory / "root";
    fs::copy(setting().directory / folder, root, fs::copy_options::recursive);
    came_that_far = save_killed_at(root, options, count);
    CAPTURE(count);
    const std::string step = loads(root);
    REQUIRE((step == "step-1" || step == "step-2"));
    if (!came_that_far) REQUIRE(step == "step-2");
    ++outcomes[step];
    zero::SaveOptions later = options;
    later.keep = 0;
    train_and_save(root, 1, step == "step-1" ? 2 : 3, later, false);
    for (const auto& entry : fs::directory_iterator(root)) {
      const std::string name = entry.path().filename();
      CAPTURE(name);
      CHECK((name == "latest" || name == ".lock" ||
             (options.replace ? name == "same" : name.starts_with("step-"))));
    }
  }
  CHECK(outcomes["step-1"] > 20);
  CHECK(outcomes["step-2"] > 5);
}

}  // namespace

TEST_CASE(
    "a kill before each file operation of a save leaves the old or the new one, which resumes") {
  check_kills("old", {.keep = 1});
}

TEST_CASE("killed before each file operation of a save that replaces a checkpoint") {
  check_kills("same", {.tag = "same", .replace = true});
}

TEST_CASE("every state that a power loss may leave loads as the old or the new one") {
  const TemporaryDirectory directory;
  const std::string root = directory / "root", left = directory / "left";
  const std::vector<std::pair<std::string, zero::SaveOptions>> saves = {
      {"old", {}}, {"old", {.keep = 1}}, {"same", {.tag = "same", .replace = true}}};
  for (const auto& [folder, options] : saves) {
    fs::remove_all(root);
    fs::copy(setting().directory / folder, root, fs::copy_options::recursive);
    Disk disk(root);
    const std::vector<Recorded> record = record_save(root, options);
    REQUIRE(record.size() > 20);
    // The bits of the recorded save are those of the undisturbed one.
    REQUIRE(loads(root) == "step-2");
    sweep::Part part(5);
    int states = 0;
    std::map<std::string, int> outcomes;
    for (std::size_t done = 0; done <= record.size(); ++done) {
      for (std::size_t names = 0; names <= disk.pending(); ++names)
        for (std::size_t without = 0; without <= names; ++without)
          for (const auto data :
               {Disk::Data::all, Disk::Data::none, Disk::Data::zeros, Disk::Data::half}) {
            if (!part.next_is_due()) continue;
            disk.write_to(left, names, without == names ? names + 1 : without, data);
            const std::string tag = loads(left);
            ++outcomes[tag];
            ++states;
            CAPTURE(done);
            CAPTURE(names);
            CAPTURE(without);
            CAPTURE(static_cast<int>(data));
            REQUIRE((tag == "step-1" || tag == "step-2"));
            // A save that was reported as complete must stay so.
            if (done == record.size()) REQUIRE(tag == "step-2");
          }
      if (done < record.size())
        disk.apply(record[done].op, record[done].path, record[done].target, record[done].data);
    }
    MESSAGE(folder << ", keep " << options.keep << ": " << record.size() << " operations, "
                   << states << " states, " << outcomes["step-1"] << " load the old and "
                   << outcomes["step-2"] << " the new one");
    CHECK(outcomes["step-1"] > 0);
    CHECK(outcomes["step-2"] > 0);
  }
}

TEST_CASE("a save is on disk when it ends, even if latest cannot be written") {
  const TemporaryDirectory directory;
  const std::string root = directory / "root", left = directory / "left";
  fs::copy(setting().directory / "old", root, fs::copy_options::recursive);
  Disk disk(root);
  for (const Recorded& call : record_save(root, {}, ".tmp-latest"))
    disk.apply(call.op, call.path, call.target, call.data);
  for (std::size_t names = 0; names <= disk.pending(); ++names) {
    CAPTURE(names);
    disk.write_to(left, names, names + 1, Disk::Data::none);
    CHECK(loads(left) == "step-2");
  }
}
