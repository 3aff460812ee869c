// zero checkpoint: lists, verifies and compares checkpoints, and exports models. Needs neither the
// ranks nor the memory of the job that wrote the files.
#include <algorithm>
#include <cinttypes>
#include <cmath>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "tools/options/number_options.h"
#include "tools/zero/commands.h"
#include "tools/zero/model_export.h"
#include "zero/base/error.h"
#include "zero/base/number_text.h"
#include "zero/base/text.h"
#include "zero/checkpoint/checkpoint_directory.h"
#include "zero/checkpoint/checkpoint_reader.h"

namespace zero::tool {
namespace {

using checkpoint::CheckpointReader;
using checkpoint::Manifest;
using checkpoint::ManifestParameter;
using checkpoint::shape_text;

constexpr std::int64_t piece_elements = std::int64_t{1} << 20;

struct CheckpointOptions {
  std::string directory, tag, other, output, dtype;
  std::int64_t max_file_bytes = 0;
};

std::string joined(const std::vector<std::string>& words) {
  return list_of(words, words.size());
}

// Control characters of a foreign file must not reach the terminal.
std::string printable(std::string text) {
  for (char& c : text)
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) c = '?';
  return text;
}

// The folders of `path` that hold checkpoints, as the Trainer's checkpoint-8 in its output_dir.
std::vector<std::string> folders_with_checkpoints(const std::string& path) {
  std::vector<std::string> found;
  std::error_code unreadable;
  for (const auto& entry : std::filesystem::directory_iterator(path, unreadable)) try {
      if (entry.is_directory() &&
          !checkpoint::candidates(checkpoint::Directory::open(entry.path())).empty())
        found.push_back(entry.path());
    } catch (const std::exception&) {
      // The user did not name this folder: nobody needs to know why it cannot be read.
    }
  std::sort(found.begin(), found.end());
  return found;
}

// Returns `path` itself if it is a checkpoint, otherwise the checkpoint inside with the tag (if
// empty: the newest that is valid). Throws LoadError.
std::string find_checkpoint(const std::string& path, const std::string& tag) {
  using namespace checkpoint;
  const Directory root = Directory::open(path);
  if (tag.empty() && (root.has(manifest_name) || root.has(manifest_digest_name)))
    return root.path();
  const auto choice = choose(path, tag);
  if (!choice) {
    const std::vector<std::string> folders = folders_with_checkpoints(path);
    throw LoadError(root.path() + ": there is no checkpoint in it" +
                    (folders.empty() ? "" : ", but in " + printable(list_of(folders, 3))));
  }
  if (!choice->newer_damaged.empty())
    throw LoadError(choice->newer_damaged + "; the newest that can be read is " +
                    choice->candidate.tag + ": to take it, give " + root.path() + "/" +
                    choice->candidate.directory);
  for (const std::string& notice : choice->notices)
    std::fprintf(stderr, "zero: notice: %s\n", printable(notice).c_str());
  return root.path() + "/" + choice->candidate.directory;
}

// Opens the checkpoint that the options name, or the newest existing checkpoint of a directory.
CheckpointReader open_checkpoint(const std::string& directory, const std::string& tag) {
  while (true) {
    const std::string path = find_checkpoint(directory, tag);
    try {
      return checkpoint::reading(path, [&] { return CheckpointReader(path); });
    } catch (const checkpoint::Retired& error) {
      if (!tag.empty() || checkpoint::is_gone(directory)) throw;
      std::fprintf(stderr, "zero: %s; taking the newest that is left\n", error.what());
    }
  }
}

void list_all(const std::string& path) {
  const auto root = checkpoint::Directory::open(path);
  if (root.has(checkpoint::manifest_name)) return;
  for (const checkpoint::Candidate& candidate : checkpoint::candidates(root))
    if (candidate.manifest)
      std::printf("%-24s step %" PRId64 ", save %" PRId64 ", %s\n", candidate.tag.c_str(),
                  candidate.manifest->step, candidate.manifest->sequence,
                  byte_text(candidate.manifest->data_bytes()).c_str());
    else
      std::printf("%-24s damaged: %s\n", candidate.tag.c_str(), candidate.problem.c_str());
  std::printf("\n");
}

std::string remarks_on(const ManifestParameter& parameter) {
  std::string result;
  if (parameter.states_dtype != "F32") result = " (states in " + parameter.states_dtype + ")";
  if (!parameter.used_by.empty())
    result += " (also used by " + printable(joined(parameter.used_by)) + ")";
  if (parameter.split_sizes.size() > 1)
    result += " (in " + std::to_string(parameter.split_sizes.size()) + " parts" +
              (parameter.split_dim ? " of dimension " + std::to_string(*parameter.split_dim) : "") +
              ")";
  return result;
}

// "shard 4 x tensor 2": the axes of more than one rank.
std::string grid_text(const Manifest& manifest) {
  std::string text;
  for (const auto& [axis, size] : manifest.grid)
    if (size != 1) text += (text.empty() ? "" : " x ") + axis + " " + std::to_string(size);
  return text.empty() ? "1" : text;
}

// The rule that acts: Adam with decoupled weight decay is AdamW.
std::string optimizer_of(const Manifest& manifest) {
  const bool decoupled =
      manifest.config.find("optimizer.params.adam_w_mode = true\n") != std::string::npos;
  return lower_case(manifest.optimizer) == "adam" && decoupled ? "AdamW" : manifest.optimizer;
}

const char* kind_of(const ManifestParameter& parameter) {
  if (parameter.is_residues()) return "residues";
  if (!parameter.moment_of.empty()) return "state";
  if (parameter.buffer) return "buffer";
  if (parameter.left_out) return "left out";
  return parameter.trainable ? "trained" : "frozen";
}

void inspect(const CheckpointOptions& options) {
  if (options.tag.empty()) list_all(options.directory);
  const CheckpointReader reader = open_checkpoint(options.directory, options.tag);
  const Manifest& m = reader.manifest();
  std::int64_t trained = 0, frozen = 0;
  std::size_t width = 9;
  for (const ManifestParameter& p : m.parameters) {
    if (!p.buffer) (p.trainable ? trained : frozen) += p.elements();
    width = std::max(width, p.name.size());
  }
  std::printf("checkpoint  %s\n", reader.path().c_str());
  std::printf("step        %" PRId64 " (%" PRId64 " applied), after %" PRId64 " samples\n", m.step,
              m.applied_steps, m.samples);
  std::printf("save        number %" PRId64 ", id %s\n", m.sequence, printable(m.save_id).c_str());
  std::printf("optimizer   %s (%s)\n", printable(optimizer_of(m)).c_str(),
              printable(joined(m.states)).c_str());
  std::printf("scheduler   %s\n",
              m.scheduler.empty() ? "none in the config" : printable(m.scheduler).c_str());
  if (!m.grid.empty()) std::printf("ranks       %s\n", printable(grid_text(m)).c_str());
  for (const auto& [term, value] : m.equality)
    std::printf("saved with  %s %s\n", printable(term).c_str(), printable(value).c_str());
  for (const auto& [key, value] : m.client_state)
    std::printf("client      %s = %s\n", printable(key).c_str(),
                printable(value.substr(0, 200)).c_str());
  if (!m.rank_states.empty()) std::printf("rank states of %zu ranks\n", m.rank_states.size());
  if (m.program_state_digest)
    std::printf("file        %s  %" PRId64 " bytes, the program's own state\n",
                checkpoint::program_state_name, m.program_state_bytes);
  for (std::size_t i = 0; i < m.files.size(); ++i)
    std::printf("file        %s  %" PRId64 " bytes, %zu tensors\n", m.files[i].name.c_str(),
                m.files[i].bytes, reader.shards()[i].entries.size());
  std::printf("parameters  %" PRId64 " trained, %" PRId64 " frozen%s\n\n", trained, frozen,
              m.without_frozen ? "; saved without frozen ones and their digests" : "");
  std::printf("%-*s  %-6s %-8s %12s  shape\n", static_cast<int>(width), "parameter", "stored",
              "kind", "elements");
  for (const ManifestParameter& p : m.parameters)
    std::printf("%-*s  %-6s %-8s %12" PRId64 "  %s%s\n", static_cast<int>(width),
                printable(p.name).c_str(), p.dtype.c_str(), kind_of(p), p.elements(),
                shape_text(p.shape).c_str(), remarks_on(p).c_str());
}

void verify(const CheckpointOptions& options) {
  CheckpointReader reader = open_checkpoint(options.directory, options.tag);
  reader.verify();
  std::printf("%s: whole: %zu parameters in %zu files, %" PRId64
              " bytes of data, every digest right, every element there once\n",
              reader.path().c_str(), reader.manifest().parameters.size(),
              reader.manifest().files.size(), reader.manifest().data_bytes());
}

void export_to(const CheckpointOptions& options) {
  std::signal(SIGXFSZ, SIG_IGN);  // a file beyond the limit is an error of the write
  CheckpointReader reader = open_checkpoint(options.directory, options.tag);
  const std::vector<std::string> files =
      export_model(reader, options.output, options.dtype, options.max_file_bytes);
  for (const std::string& file : files) std::printf("wrote %s\n", file.c_str());
}

struct Difference {
  std::int64_t elements = 0;
  double largest = 0;
};

Difference compare(CheckpointReader& a, int in_a, int kind_a, CheckpointReader& b, int in_b,
                   int kind_b) {
  const std::int64_t elements = a.manifest().parameters[static_cast<std::size_t>(in_a)].elements();
  Difference difference;
  std::vector<float> left, right;
  for (std::int64_t first = 0; first < elements; first += piece_elements) {
    const auto count = static_cast<std::size_t>(std::min(piece_elements, elements - first));
    left.resize(count);
    right.resize(count);
    a.read(in_a, kind_a, first, left);
    b.read(in_b, kind_b, first, right);
    for (std::size_t i = 0; i < count; ++i)
      if (std::memcmp(&left[i], &right[i], sizeof(float)) != 0) {
        ++difference.elements;
        const double by = std::fabs(double{left[i]} - double{right[i]});
        if (!(by <= difference.largest)) difference.largest = by;
      }
  }
  return difference;
}

// Returns the number of the parameter with this name, or -1 if there is none.
int number_of(const Manifest& manifest, const std::string& name) {
  const auto& all = manifest.parameters;
  const auto found = std::ranges::find(all, name, &ManifestParameter::name);
  return found == all.end() ? -1 : static_cast<int>(found - all.begin());
}

// Prints the differences; returns the number of lines.
int compare_parameter(CheckpointReader& a, CheckpointReader& b, std::size_t number) {
  const ManifestParameter& own = a.manifest().parameters[number];
  const int in_a = static_cast<int>(number), in_b = number_of(b.manifest(), own.name);
  const std::string name = printable(own.name);
  if (in_b < 0) {
    std::printf("%s: only in %s\n", name.c_str(), a.path().c_str());
    return 1;
  }
  const ManifestParameter& other = b.manifest().parameters[static_cast<std::size_t>(in_b)];
  if (own.shape != other.shape) {
    std::printf("%s: shape %s and %s\n", name.c_str(), shape_text(own.shape).c_str(),
                shape_text(other.shape).c_str());
    return 1;
  }
  int lines = 0;
  const auto line = [&](const std::string& what, const Difference& difference) {
    if (difference.elements == 0) return;
    ++lines;
    std::printf("%s%s: %" PRId64 " of %" PRId64 " elements differ, by %.3g at most\n", name.c_str(),
                what.c_str(), difference.elements, own.elements(), difference.largest);
  };
  const auto remark = [&](const char* difference) {
    ++lines;
    std::printf("%s: %s\n", name.c_str(), difference);
  };
  if (own.buffer || other.buffer) {
    if (own.buffer != other.buffer || own.dtype != other.dtype ||
        bytes_of(a, in_a) != bytes_of(b, in_b))
      remark("the buffers differ");
    return lines;
  }
  if (own.left_out || other.left_out) {
    if (own.left_out != other.left_out)
      remark(own.left_out && other.left_out ? "left out, of other values"
                                            : "left out of one of them");
    return lines;
  }
  line("", compare(a, in_a, 0, b, in_b, 0));
  if (!own.trainable || !other.trainable) return lines;
  const std::vector<std::string>&states = a.manifest().states, &others = b.manifest().states;
  for (std::size_t k = 0; k < states.size(); ++k) {
    const auto found = std::find(others.begin(), others.end(), states[k]);
    if (found != others.end())
      line(" " + printable(states[k]), compare(a, in_a, static_cast<int>(k) + 1, b, in_b,
                                               static_cast<int>(found - others.begin()) + 1));
  }
  return lines;
}

void diff(const CheckpointOptions& options) {
  CheckpointReader a = open_checkpoint(options.directory, options.tag);
  CheckpointReader b = open_checkpoint(options.other, options.tag);
  int lines = 0;
  const auto field = [&](const char* name, const std::string& left, const std::string& right) {
    if (left == right) return;
    ++lines;
    std::printf("%s: %s and %s\n", name, printable(left).c_str(), printable(right).c_str());
  };
  const Manifest &left = a.manifest(), &right = b.manifest();
  field("step", std::to_string(left.step), std::to_string(right.step));
  field("applied steps", std::to_string(left.applied_steps), std::to_string(right.applied_steps));
  field("optimizer", optimizer_of(left), optimizer_of(right));
  if (left.rank_states != right.rank_states) field("rank states", "those of one", "others");
  field("optimizer states", joined(left.states), joined(right.states));
  for (std::size_t p = 0; p < left.parameters.size(); ++p) lines += compare_parameter(a, b, p);
  for (const ManifestParameter& p : right.parameters)
    if (number_of(left, p.name) < 0) {
      ++lines;
      std::printf("%s: only in %s\n", printable(p.name).c_str(), b.path().c_str());
    }
  if (lines > 0) throw Differ(a.path() + " and " + b.path() + " differ");
  std::printf("%s and %s hold the same state\n", a.path().c_str(), b.path().c_str());
}

CLI::App* add(CLI::App& parent, const char* name, const char* help,
              const std::shared_ptr<CheckpointOptions>& options,
              void (*action)(const CheckpointOptions&)) {
  CLI::App* command = parent.add_subcommand(name, help);
  command
      ->add_option("DIR", options->directory,
                   "A checkpoint, or a directory of some: its newest valid one")
      ->required();
  command->add_option("--tag", options->tag, "The checkpoint with this tag");
  command->callback([options, action] { action(*options); });
  return command;
}

}  // namespace

void add_checkpoint(CLI::App& app) {
  auto options = std::make_shared<CheckpointOptions>();
  CLI::App* command =
      app.add_subcommand("checkpoint", "Look into, verify, export or compare checkpoints");
  command->require_subcommand(1);
  add(*command, "inspect", "Show its step, files and parameters", options, inspect);
  add(*command, "verify", "Read every byte and check all digests and coverage", options, verify);
  CLI::App* exported =
      add(*command, "export", "Write the model as Hugging Face safetensors", options, export_to);
  exported->add_option("OUTPUT", options->output, "Directory to write to")->required();
  exported->add_option("--dtype", options->dtype,
                       "fp32, bf16 or fp16 (default: the run's compute dtype)");
  add_number(*exported, "--max-shard-size", options->max_file_bytes,
             "Several files of at most this size, such as 500MB or 5GB (default: one file)");
  add(*command, "diff", "Which parameters differ between two; exit code 1 if any", options, diff)
      ->add_option("OTHER", options->other, "The checkpoint to compare with")
      ->required();
}

}  // namespace zero::tool
