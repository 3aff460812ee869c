// Any damage to the files of a checkpoint is noticed before any of its data is used.
#include <doctest/doctest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>

#include "tests/checkpoint/engine_support.h"
#include "tests/support/refusal.h"
#include "tests/support/stderr_of.h"
#include "tests/support/temporary_directory.h"
#include "zero/checkpoint/checkpoint_directory.h"
#include "zero/checkpoint/checkpoint_reader.h"

namespace {

namespace fs = std::filesystem;
using zero::LoadError;
using zero::checkpoint::Directory;
using zero::checkpoint::Manifest;
using zero::tests::config_of;
using zero::tests::contains;
using zero::tests::read_text;
using zero::tests::refusal;
using zero::tests::strategies;
using zero::tests::TemporaryDirectory;
using zero::tests::train_until;
using zero::tests::with_engine;

const std::string first_shard = "shard-00001-of-00002.safetensors";
const std::string second_shard = "shard-00002-of-00002.safetensors";

// Holds two saves of one run by two ranks: tags "a" and "b".
const TemporaryDirectory& original() {
  static const TemporaryDirectory directory;
  static const bool made = [] {
    with_engine(2, config_of(strategies[2], true),
                [](zero::Runtime& runtime, zero::Engine& engine) {
                  engine.initialize(toy::fill);
                  train_until(runtime, engine, 1);
                  engine.save_checkpoint(directory / "root", {"a"});
                  train_until(runtime, engine, 2);
                  engine.save_checkpoint(directory / "root", {"b"});
                });
    return true;
  }();
  (void)made;
  return directory;
}

// A copy that a test may damage.
struct Copy {
  Copy() { fs::copy(original() / "root", root, fs::copy_options::recursive); }
  std::string file(const std::string& name, const std::string& tag = "b") const {
    return root + "/" + tag + "/" + name;
  }
  void write(const std::string& path, const std::string& text) const {
    std::ofstream(path, std::ios::binary | std::ios::trunc) << text;
  }

  TemporaryDirectory directory;
  std::string root = directory / "root";
};

// Runs all checks of a load, without an engine.
void verify(const std::string& root, const std::string& tag = "b") {
  zero::checkpoint::CheckpointReader(root + "/" + tag).verify();
}

void set_manifest(const Copy& copy, const std::string& text) {
  copy.write(copy.file("manifest.json"), text);
  copy.write(copy.file("manifest.xxh3"), zero::checkpoint::format_manifest_digest(text));
}

// Returns the error for a changed manifest with a fitting digest: an attack, not an accident.
std::string refusal_of_forged(const std::function<void(nlohmann::json&)>& change) {
  const Copy copy;
  auto document = nlohmann::json::parse(read_text(copy.file("manifest.json")));
  change(document);
  set_manifest(copy, document.dump());
  return refusal<LoadError>([&] { verify(copy.root); });
}

}  // namespace

TEST_CASE("the original passes") {
  CHECK(refusal<LoadError>([] { verify(original() / "root"); }) == "");
}

TEST_CASE("every flipped bit of manifest and digest is noticed") {
  const Copy copy;
  for (const char* name : {"manifest.json", "manifest.xxh3"}) {
    const std::string text = read_text(copy.file(name));
    for (std::size_t i = 0; i < text.size(); ++i) {
      std::string damaged = text;
      damaged[i] = static_cast<char>(damaged[i] ^ (1 << (i % 8)));
      copy.write(copy.file(name), damaged);
      CAPTURE(i);
      REQUIRE(contains(
          refusal<LoadError>([&] { read_manifest(Directory::open(copy.root).child("b")); }),
          "manifest"));
    }
    copy.write(copy.file(name), text);
  }
}

TEST_CASE("every cut of manifest and digest is noticed") {
  const Copy copy;
  for (const char* name : {"manifest.json", "manifest.xxh3"}) {
    const std::string text = read_text(copy.file(name));
    for (std::size_t size = 0; size < text.size(); ++size) {
      fs::resize_file(copy.file(name), size);
      REQUIRE(refusal<LoadError>([&] { read_manifest(Directory::open(copy.root).child("b")); }) !=
              "");
      copy.write(copy.file(name), text);
    }
  }
}

TEST_CASE("flipped bits of shards are noticed, by file, bytes and tensor") {
  const Copy copy;
  for (const std::string& shard : {first_shard, second_shard}) {
    const std::string text = read_text(copy.file(shard));
    const std::int64_t header = zero::checkpoint::CheckpointReader(copy.root + "/b")
                                    .shards()[shard == second_shard]
                                    .header_bytes;
    for (std::size_t i = 0; i < text.size(); i += i < 600 ? 1 : 61) {
      std::string damaged = text;
      damaged[i] = static_cast<char>(damaged[i] ^ (1 << (i % 8)));
      copy.write(copy.file(shard), damaged);
      const std::string what = refusal<LoadError>([&] { verify(copy.root); });
      CAPTURE(i);
      CAPTURE(what);
      REQUIRE(contains(what, shard));
      REQUIRE(contains(what, "expected"));
      REQUIRE(contains(what, "found"));
      REQUIRE(contains(what, static_cast<std::int64_t>(i) < header ? "header" : "are damaged (\""));
    }
    copy.write(copy.file(shard), text);
  }
}

TEST_CASE("shards of another length, missing, swapped, foreign, or no plain file") {
  const auto with = [](const std::function<void(const Copy&)>& damage) {
    const Copy copy;
    damage(copy);
    return refusal<LoadError>([&] { verify(copy.root); });
  };
  const std::uintmax_t size = fs::file_size(original() / ("root/b/" + first_shard));
  for (const std::uintmax_t cut : {std::uintmax_t{0}, std::uintmax_t{7}, std::uintmax_t{8},
                                   std::uintmax_t{1000}, size - 1, size + 1}) {
    const std::string what =
        with([&](const Copy& copy) { fs::resize_file(copy.file(first_shard), cut); });
    CAPTURE(what);
    CHECK(contains(what, first_shard + ": has " + std::to_string(cut) +
                             " bytes, the manifest says " + std::to_string(size)));
  }
  CHECK(contains(with([](const Copy& copy) { fs::remove(copy.file(second_shard)); }),
                 second_shard + ": cannot be read: No such file"));
  CHECK(contains(with([](const Copy& copy) {
                   fs::rename(copy.file(first_shard), copy.file("x"));
                   fs::rename(copy.file(second_shard), copy.file(first_shard));
                   fs::rename(copy.file("x"), copy.file(second_shard));
                 }),
                 "shard-0000"));
  const std::string foreign = with([](const Copy& copy) {
    fs::copy_file(copy.file(first_shard, "a"), copy.file(first_shard),
                  fs::copy_options::overwrite_existing);
  });
  CHECK(contains(foreign, "of another checkpoint"));
  CHECK(contains(with([](const Copy& copy) {
                   fs::rename(copy.file(first_shard), copy.root + "/elsewhere");
                   fs::create_symlink(copy.root + "/elsewhere", copy.file(first_shard));
                 }),
                 "is a symbolic link"));
  CHECK(contains(with([](const Copy& copy) {
                   fs::remove(copy.file(first_shard));
                   CHECK(::mkfifo(copy.file(first_shard).c_str(), 0600) == 0);
                 }),
                 "is not a regular file"));
  CHECK(with([](const Copy& copy) {
          fs::remove(copy.file(first_shard));
          fs::create_directory(copy.file(first_shard));
        }) != "");
}

TEST_CASE("a load reads the header of each file once, whatever the number of ranks") {
  const auto reads = [](int ranks) {
    std::atomic<int> count{0};
    zero::checkpoint::set_file_hook([&](const zero::checkpoint::FileEvent& event) {
      if (event.op == zero::checkpoint::FileOp::read && event.offset == 0 &&
          event.path.ends_with(".safetensors"))
        ++count;
      return 0;
    });
    with_engine(ranks, config_of(strategies[1], true),
                [&](zero::Runtime&, zero::Engine& engine) { engine.resume(original() / "root"); });
    zero::checkpoint::set_file_hook({});
    return count.load();
  };
  CHECK(reads(1) == 4);  // of two files: its length, then its content
  CHECK(reads(3) == 4);
}

TEST_CASE("forged manifests are refused") {
  using nlohmann::json;
  const std::vector<std::pair<std::function<void(json&)>, const char*>> cases = {
      {[](json& d) { d["files"][0]["name"] = "../" + first_shard; }, "starts with a dot"},
      {[](json& d) { d["files"][0]["name"] = "/etc/passwd"; }, "has a slash"},
      {[](json& d) { d["files"][0]["name"] = "x/../" + first_shard; }, "has a slash"},
      {[](json& d) { d["files"][0]["name"] = std::string("a\n"); }, "outside printable ASCII"},
      {[](json& d) { d["files"][0]["name"] = ""; }, "is empty"},
      {[](json& d) { d["files"][0]["name"] = std::string(300, 'x'); }, "longer than"},
      {[](json& d) { d["files"][1]["name"] = d["files"][0]["name"]; }, "given twice"},
      {[](json& d) { d["format"] = "other"; }, "not the manifest of a ZeroCore checkpoint"},
      {[](json& d) { d["schema"] = 4; }, "written by a newer one"},
      {[](json& d) { d["schema"] = 0; }, "has schema 0, this version reads 3"},
      {[](json& d) { d["schema"] = "1"; }, "must be an integer"},
      {[](json& d) { d["step"] = -1; }, "negative number"},
      {[](json& d) { d["step"] = 1.5; }, "fraction"},
      {[](json& d) { d["step"] = 9223372036854775808u; }, "too large"},
      {[](json& d) { d.erase("step"); }, "\"step\" is missing"},
      {[](json& d) { d["config"] = nullptr; }, "null"},
      {[](json& d) {
         d["client_state"] = {{"a", 1}};
       },
       "object of strings"},
      {[](json& d) {
         d["parameters"][0]["shape"] = {4294967296, 4294967296};
       },
       "64 bits"},
      {[](json& d) { d["parameters"][0]["dtype"] = "I64"; }, "cannot be stored"},
      {[](json& d) { d["parameters"][0]["dtype"] = "I8"; }, "the manifest says I8"},
      {[](json& d) { d["parameters"][0]["states_dtype"] = "I8"; }, "states that cannot be stored"},
      {[](json& d) { d["parameters"][0]["name"] = "a\x01"; }, "control character"},
      {[](json& d) { d["parameters"][1]["name"] = d["parameters"][0]["name"]; }, "given twice"},
      {[](json& d) { d["parameters"].erase(0); }, ""},
      {[](json& d) { d["files"].erase(1); }, "are in no file"},
      {[](json& d) { d["files"][0]["chunk_digests"].clear(); }, "expected file digest"},
      {[](json& d) { d["files"][0]["digest"] = "12"; }, "32 hexadecimal digits"},
      {[](json& d) { d["files"][0]["bytes"] = 9223372036854775807; }, "cut short"},
      {[](json& d) { d["optimizer"] = "AdamW"; }, "\"optimizer/type\" is missing"},
      {[](json& d) { d["save_id"] = std::string(32, '0'); }, "belongs to save"},
      {[](json& d) { d["config"] = json::parse("[[[[[[[[[1]]]]]]]]]"); }, "nested"},
  };
  for (std::size_t i = 0; i < cases.size(); ++i) {
    CAPTURE(i);
    const std::string what = refusal_of_forged(cases[i].first);
    CAPTURE(what);
    CHECK(what != "");
    CHECK(contains(what, cases[i].second));
  }
  const Copy copy;
  const std::string text = read_text(copy.file("manifest.json"));
  set_manifest(copy, "{\"step\":1," + text.substr(1));
  CHECK(contains(refusal<LoadError>([&] { verify(copy.root); }), "the key \"step\" twice"));
  set_manifest(copy, text + std::string(1, '\0'));
  CHECK(contains(refusal<LoadError>([&] { verify(copy.root); }), "NUL"));
  set_manifest(copy, std::string(1'000'000, '['));
  CHECK(refusal<LoadError>([&] { verify(copy.root); }) != "");
}

TEST_CASE("a damaged checkpoint leaves a running engine as it was, on all ranks") {
  const Copy copy;
  const std::string text = read_text(copy.file(second_shard));
  std::string damaged = text;
  damaged[text.size() - 3] = static_cast<char>(damaged[text.size() - 3] ^ 4);
  const auto without_fallback = [](const zero::tests::Strategy& strategy) {
    zero::Config config = config_of(strategy, true);
    config.zero_core.resume_fallback = false;
    return config;
  };
  for (const auto& strategy : strategies)
    with_engine(3, without_fallback(strategy), [&](zero::Runtime& runtime, zero::Engine& engine) {
      engine.initialize(toy::fill);
      const toy::Trace before = train_until(runtime, engine, 1);
      if (runtime.is_root()) copy.write(copy.file(second_shard), damaged);
      runtime.sum(0);
      std::string what;
      try {
        engine.resume(copy.root);
      } catch (const LoadError& error) {
        what = error.what();
      }
      CHECK(contains(what, second_shard));
      CHECK(contains(what, "resume from another checkpoint by its tag"));
      CHECK(engine.digest() == before.digest);
      CHECK(engine.step_count() == 1);
      runtime.sum(0);
      if (runtime.is_root()) copy.write(copy.file(second_shard), text);
      runtime.sum(0);
      CHECK(engine.resume(copy.root)->tag == "b");
      CHECK(engine.step_count() == 2);
    });
  // A fresh engine has nothing to lose: it reads once, and throws.
  copy.write(copy.file(second_shard), damaged);
  with_engine(2, without_fallback(strategies[3]), [&](zero::Runtime&, zero::Engine& engine) {
    CHECK_THROWS_AS(engine.resume(copy.root), LoadError);
    CHECK_THROWS_AS(engine.initialize(toy::fill), zero::UsageError);
  });
}

TEST_CASE("if a file of the newest checkpoint is damaged, the one before it is loaded") {
  const auto spoil = [](const Copy& copy, const char* tag) {
    std::string text = read_text(copy.file(second_shard, tag));
    text[text.size() - 3] = static_cast<char>(text[text.size() - 3] ^ 4);
    copy.write(copy.file(second_shard, tag), text);
  };
  for (const auto& strategy : strategies)
    for (const bool fresh : {true, false}) {
      CAPTURE(strategy.name);
      const Copy copy;
      spoil(copy, "b");
      const std::string left = read_text(copy.file(second_shard));
      const std::string said = zero::tests::stderr_of([&] {
        with_engine(3, config_of(strategy, true),
                    [&](zero::Runtime& runtime, zero::Engine& engine) {
                      if (!fresh) engine.initialize(toy::fill);
                      const auto resumed = engine.resume(copy.root, zero::Resume::if_any);
                      CHECK(resumed->tag == "a");
                      CHECK(engine.step_count() == 1);
                      zero::Engine other(runtime, toy::describe({}), config_of(strategy, true));
                      other.resume(copy.root, zero::Resume::must_exist, "a");
                      CHECK(engine.digest() == other.digest());
                      CHECK(read_text(copy.file(second_shard)) == left);
                      // The run reaches the tag of the damaged checkpoint again.
                      train_until(runtime, engine, 2);
                      engine.save_checkpoint(copy.root, {"b"}).wait();
                      CHECK(other.resume(copy.root)->tag == "b");
                      CHECK(engine.digest() == other.digest());
                    });
      });
      CHECK(contains(said, second_shard));
      CHECK(contains(said, "left as it is, and the newest one before it is taken"));
      CHECK(read_text(copy.root + "/.trash-set-aside-b/" + second_shard) == left);
    }
  // If it is requested by its tag, it is refused; if all are damaged, none is left to load.
  const Copy copy;
  spoil(copy, "b");
  const auto resume = [&](const std::string& tag) {
    return refusal<LoadError>([&] {
      with_engine(2, config_of(strategies[1], true), [&](zero::Runtime&, zero::Engine& engine) {
        engine.resume(copy.root, zero::Resume::if_any, tag);
      });
    });
  };
  CHECK(contains(resume("b"), "b/" + second_shard));
  CHECK(resume("").empty());
  spoil(copy, "a");
  CHECK(contains(resume(""), "a/" + second_shard));
}

TEST_CASE("the newest valid checkpoint is loaded, and damage is reported") {
  const Copy copy;
  const auto chosen = [&](const std::string& tag = "") {
    return zero::checkpoint::choose(copy.root, tag);
  };
  CHECK(chosen()->candidate.tag == "b");
  CHECK(chosen()->notices.empty());
  copy.write(copy.root + "/latest", "a\n");
  CHECK(chosen()->candidate.tag == "b");
  CHECK(contains(chosen()->notices.at(0), "says \"a\""));
  fs::remove(copy.root + "/latest");
  CHECK(contains(chosen()->notices.at(0), "is missing"));
  copy.write(copy.file("manifest.json"), "{");
  CHECK(chosen()->candidate.tag == "a");
  CHECK(contains(chosen()->notices.at(0), "is damaged"));
  CHECK(contains(refusal<LoadError>([&] { chosen("b"); }), "is damaged"));
  CHECK(contains(refusal<LoadError>([&] { chosen("c"); }), "has no checkpoint \"c\"; it has a, b"));
  fs::remove(copy.file("manifest.json", "a"));
  CHECK(contains(refusal<LoadError>([&] { chosen(); }), "none of its checkpoints"));
  // A renamed checkpoint is refused, since its manifest has another name.
  fs::remove_all(copy.root + "/b");
  fs::copy(original() / "root/b", copy.root + "/c");
  CHECK(contains(refusal<LoadError>([&] { chosen("c"); }), "was it renamed?"));
}

TEST_CASE("directories of other programs are reported as such") {
  const TemporaryDirectory directory;
  CHECK(!zero::checkpoint::choose(directory / "missing", ""));
  CHECK(!zero::checkpoint::choose(directory.path().string(), ""));
  fs::create_directories(directory / "ds/global_step10");
  directory.file("ds/latest", "global_step10");
  directory.file("ds/global_step10/mp_rank_00_model_states.pt", "PK");
  CHECK(contains(refusal<LoadError>([&] { zero::checkpoint::choose(directory / "ds", ""); }),
                 "is a DeepSpeed checkpoint"));
  directory.file("file", "x");
  CHECK(refusal<LoadError>([&] { zero::checkpoint::choose(directory / "file", ""); }) != "");
  fs::create_symlink(original() / "root", directory / "link");
  CHECK(contains(refusal<LoadError>([&] { zero::checkpoint::choose(directory / "link", ""); }),
                 "is a symbolic link"));
}

TEST_CASE("another model gets the list of differences") {
  zero::testing::run_ranks(2, [](zero::Runtime& runtime) {
    zero::Engine engine(runtime, toy::describe({.vocabulary = 31, .blocks = 6}),
                        config_of(strategies[1], true));
    const std::string what = refusal<LoadError>([&] { engine.resume(original() / "root"); });
    CHECK(contains(what, "does not fit the model"));
    CHECK(contains(what, "embed.wte has shape [29, 18], the model has [31, 18]"));
    CHECK(contains(what, "block.5.weight is in the model, not in the checkpoint"));
    zero::Config sgd = config_of(strategies[1], true);
    sgd.optimizer.type = "SGD";
    sgd.optimizer.momentum = 0.9;
    zero::Engine other(runtime, toy::describe({}), sgd);
    CHECK(contains(refusal<LoadError>([&] { other.resume(original() / "root"); }),
                   "the optimizer state exp_avg of AdamW is not one of this run's SGD"));
  });
}
