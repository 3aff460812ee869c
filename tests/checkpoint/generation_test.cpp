// Only the newest generation of a run commits a checkpoint.
#include "zero/checkpoint/generation.h"

#include <doctest/doctest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "tests/support/refusal.h"
#include "tests/support/temporary_directory.h"
#include "zero/base/error.h"
#include "zero/checkpoint/directory_writer.h"

namespace {

using namespace zero::checkpoint;
using zero::SaveError;
using zero::tests::contains;
using zero::tests::refusal;
using zero::tests::TemporaryDirectory;

// The generation of this process, for the lifetime of the object.
class InGeneration {
 public:
  explicit InGeneration(const char* text) { setenv(generation_variable, text, 1); }
  ~InGeneration() { unsetenv(generation_variable); }
};

std::string content(const std::string& file) {
  std::string line;
  std::getline(std::ifstream(file) >> std::ws, line);
  return line;
}

Manifest manifest_of(DirectoryWriter& writer, const std::string& tag) {
  Manifest manifest;
  manifest.tag = tag;
  manifest.save_id = random_id();
  manifest.sequence = writer.next_sequence();
  writer.begin(tag, manifest.save_id, 0);
  return manifest;
}

TEST_CASE("generations are read strictly") {
  CHECK(parse_generation("00ff:12") == Generation{"00ff", 12});
  for (const char* wrong : {"", ":1", "ff", "ff:", "ff:0", "ff:-1", "ff:1x", "x:1", "ff:1:2",
                            "0123456789abcdef0123456789abcdef0:1"})
    CHECK_MESSAGE(!parse_generation(wrong), wrong);
  const InGeneration wrong("ff");
  CHECK(contains(refusal<zero::ConfigError>([] { own_generation(); }), "JOB:NUMBER"));
}

TEST_CASE("an older generation can neither begin nor commit a save") {
  const TemporaryDirectory directory;
  const std::string root = directory / "saves";
  setenv(generation_variable, "ab:1", 1);
  DirectoryWriter old(root);
  const Manifest begun = manifest_of(old, "step-1");
  {
    // It holds the lock of its predecessor's directory, although that still has its own.
    const InGeneration newer("ab:2");
    DirectoryWriter writer(root);
    CHECK(content(root + "/.generation") == "ab:2");
    CHECK(contains(content(root + "/.lock"), "generation ab:2"));
    writer.commit(manifest_of(writer, "step-2"));
  }
  const InGeneration older("ab:1");
  const auto text = refusal<SaveError>([&] { old.commit(begun); });
  CHECK_MESSAGE(contains(text, "generation 1 of this run may no longer save: generation 2"), text);
  CHECK(contains(refusal<SaveError>([&] { manifest_of(old, "step-3"); }), "may no longer save"));
  CHECK(contains(refusal<SaveError>([&] { DirectoryWriter again(root); }),
                 "generation 2 has started"));
  CHECK(!std::filesystem::exists(root + "/step-1"));
  CHECK(std::filesystem::exists(root + "/step-2/manifest.json"));
}

TEST_CASE("a commit that has passed its check finds its files gone") {
  const TemporaryDirectory directory;
  const std::string root = directory / "saves";
  setenv(generation_variable, "ab:1", 1);
  DirectoryWriter old(root);
  const Manifest begun = manifest_of(old, "step-1");
  const InGeneration newer("ab:2");
  claim_again(root);
  // The number is put back, as if the old one had read it before.
  std::ofstream(root + "/.generation") << "ab:1\n";
  setenv(generation_variable, "ab:1", 1);
  CHECK(refusal<zero::Error>([&] { old.commit(begun); }) != "");
  CHECK(!std::filesystem::exists(root + "/step-1"));
}

TEST_CASE("a load claims the directory of its own run alone") {
  const TemporaryDirectory directory;
  const std::string root = directory / "saves";
  {
    const InGeneration own("ab:1");
    claim_again(root);
    CHECK(!std::filesystem::exists(root));
    const DirectoryWriter writer(root);
  }
  const auto after = [&](const char* generation) {
    const InGeneration own(generation);
    claim_again(root);
    return content(root + "/.generation");
  };
  CHECK(after("cd:7") == "ab:1");
  CHECK(after("ab:3") == "ab:3");
  const InGeneration older("ab:2");
  CHECK(contains(refusal<SaveError>([&] { claim_again(root); }), "generation 3 has started"));
}

TEST_CASE("a run without generations takes over from one with them, and locks still hold") {
  const TemporaryDirectory directory;
  const std::string root = directory / "saves";
  {
    const InGeneration own("ab:1");
    const DirectoryWriter writer(root);
    setenv(generation_variable, "cd:9", 1);
    CHECK(contains(refusal<SaveError>([&] { DirectoryWriter other(root); }),
                   "another job saves here"));
    setenv(generation_variable, "ab:1", 1);
    CHECK(contains(refusal<SaveError>([&] { DirectoryWriter again(root); }),
                   "another engine of this process"));
  }
  const DirectoryWriter plain(root);
  CHECK(!std::filesystem::exists(root + "/.generation"));
  const InGeneration own("ab:2");
  CHECK(
      contains(refusal<SaveError>([&] { DirectoryWriter other(root); }), "another job saves here"));
}

}  // namespace
