// A directory with one checkpoint; the input replaces one of its files: a load gives the original
// bit by bit, or nothing. If a manifest's digest was made to fit, anything may be read, but nothing
// outside the file.
//
// Input: one byte that chooses the file, then its content.
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>
#include <vector>

#include "tests/fuzz/fuzz.h"
#include "zero/base/error.h"
#include "zero/checkpoint/checkpoint_reader.h"
#include "zero/checkpoint/directory_writer.h"
#include "zero/checkpoint/safetensors_file.h"

using namespace zero::checkpoint;

namespace {

constexpr const char* tag = "step-3";
constexpr std::int64_t most_elements = 1 << 20;

// A checkpoint of two files, in a directory that is removed when the process ends.
class Original {
 public:
  Original() {
    std::string pattern = (std::filesystem::temp_directory_path() / "zero-fuzz-XXXXXX").string();
    require(::mkdtemp(pattern.data()) != nullptr);
    root_ = pattern;
    save();
    values_ = read(root_);
    for (const char* name : names) contents_.push_back(content_of(name));
  }
  ~Original() {
    std::error_code ignored;
    std::filesystem::remove_all(root_, ignored);
  }

  static constexpr const char* names[] = {"manifest.json", "manifest.xxh3", "shard-1", "../latest"};
  static constexpr int files = 4;

  const std::string& root() const { return root_; }
  const std::vector<float>& values() const { return values_; }
  void put(int file, std::string_view content) const {
    std::ofstream(path_of(names[file]), std::ios::binary | std::ios::trunc) << content;
  }
  void restore(int file) const { put(file, contents_[static_cast<std::size_t>(file)]); }

  static std::vector<float> read(const std::string& root) {
    const auto choice = choose(root, "");
    if (!choice) throw zero::LoadError("none");
    CheckpointReader reader(root + "/" + choice->candidate.tag);
    std::vector<float> all;
    const Manifest& manifest = reader.manifest();
    for (std::size_t p = 0; p < manifest.parameters.size(); ++p) {
      const std::int64_t count = manifest.parameters[p].elements();
      if (count > most_elements) throw zero::LoadError("large");
      for (int kind = 0; kind <= (manifest.parameters[p].trainable ? 1 : 0) &&
                         kind <= static_cast<int>(manifest.states.size());
           ++kind) {
        std::vector<float> values(static_cast<std::size_t>(count));
        reader.read(static_cast<int>(p), kind, 0, values);
        all.insert(all.end(), values.begin(), values.end());
      }
    }
    reader.verify();
    return all;
  }

 private:
  std::string path_of(const std::string& name) const { return root_ + "/" + tag + "/" + name; }
  std::string content_of(const std::string& name) const {
    std::ifstream in(path_of(name), std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
  }

  void save() const {
    Manifest m;
    m.tag = tag;
    m.save_id = std::string(32, '7');
    m.step = 3;
    m.optimizer = "SGD";
    m.states = {"momentum_buffer"};
    m.parameters = {{"a.weight", {3, 5}, "F32", true, {}}, {"a.frozen", {7}, "BF16", false, {}}};
    const std::vector<std::vector<ElementRange>> files = {{{0, 0, 0, 15}, {0, 1, 0, 9}},
                                                          {{0, 1, 9, 6}, {1, 0, 0, 7}}};
    DirectoryWriter writer(root_);
    m.sequence = writer.next_sequence();
    writer.begin(m.tag, m.save_id, 10'000);
    const Directory temporary = Directory::open(root_).child(temporary_name(m.tag, m.save_id));
    for (const std::vector<ElementRange>& ranges : files) {
      const std::vector<FileEntry> entries = entries_of(m, ranges);
      const std::string header = format_shard_header(m, entries);
      const std::int64_t bytes = entries.back().end();
      ManifestFile file{.name = "shard-" + std::to_string(m.files.size() + 1),
                        .bytes = std::ssize(header) + bytes};
      SafetensorsWriter writer(temporary.create(file.name), header, bytes);
      std::vector<std::byte> data(static_cast<std::size_t>(bytes));
      for (std::size_t i = 0; i < data.size(); ++i) data[i] = static_cast<std::byte>(i % 61);
      writer.write(data);
      writer.finish();
      ChunkDigester digester;
      digester.update(data);
      file.chunks = digester.finish();
      file.digest = file_digest(header, file.chunks);
      m.files.push_back(file);
    }
    writer.commit(m);
  }

  std::string root_;
  std::vector<float> values_;
  std::vector<std::string> contents_;
};

// Returns "" if it is refused.
std::vector<float> read_or_refuse(const std::string& root) {
  try {
    return Original::read(root);
  } catch (const zero::LoadError&) {
    return {};
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const Original original;
  if (size == 0) return 0;
  const std::string_view content(reinterpret_cast<const char*>(data) + 1, size - 1);
  const int choice = data[0] % (Original::files + 1);
  if (choice == Original::files) {
    original.put(0, content);
    original.put(1, format_manifest_digest(content));
    read_or_refuse(original.root());
    original.restore(0);
    original.restore(1);
    return 0;
  }
  original.put(choice, content);
  const std::vector<float> found = read_or_refuse(original.root());
  require(found.empty() || found == original.values());
  original.restore(choice);
  return 0;
}
