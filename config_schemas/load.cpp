#include "config_schemas/load.h"

#include <algorithm>
#include <map>

#include "config_schemas/overrides.h"
#include "config_schemas/problems.h"
#include "config_schemas/values.h"
#include "zero/base/error.h"

namespace zero::config_schemas {
namespace {

// A value found in the document, with its row.
struct Given {
  const Key* key;
  std::string path;  // as the user spelled it
  std::string name;  // what "*" of the row's path stands for
  const Node* node;
};

bool valid_group_name(std::string_view name) {
  const auto allowed = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
           c == '-';
  };
  return !name.empty() && name.size() <= 64 && std::ranges::all_of(name, allowed);
}

class Loader {
 public:
  explicit Loader(ProblemList& problems) : problems_(problems) {}

  Config load(const Node& root) {
    if (root.kind != Node::Kind::object) {
      problems_.add(root.position, "a config must be a JSON object { ... }");
      return {};
    }
    collect({.node = &root});
    store();
    check_parameters();
    check_batch();
    check_nesterov();
    return std::move(config_);
  }

 private:
  struct Section {
    std::string_view row_path = "";
    std::string path = "", name = "";
    const Node* node = nullptr;
  };

  // Recursion is as deep as the table, whatever the document.
  void collect(const Section& section) {
    std::map<const Key*, const Member*> seen;
    for (const Member& member : section.node->members) {
      const std::string path = section.path.empty() ? member.key : section.path + "." + member.key;
      const Key* key = find_key(section.row_path, member.key);
      if (key == nullptr) {
        problems_.unknown_key(member.position, path);
        continue;
      }
      const bool wildcard = last_name(key->path) == "*";
      const auto [earlier, is_new] = seen.emplace(key, &member);
      if (!is_new && !wildcard) {
        const std::string& other = earlier->second->key;  // an equal key is a duplicate: reported
        if (other != member.key)
          problems_.add(member.position, path + ": is another spelling of " + other +
                                             ", which is given too; keep one");
        continue;
      }
      if (wildcard && !valid_group_name(member.key)) {
        problems_.add(member.position,
                      printable(path) + ": is no group name; allowed: letters, digits, _ and -");
        continue;
      }
      add({key, path, wildcard ? member.key : section.name, &member.value}, member.position);
    }
  }

  void add(Given given, Position key_position) {
    const Key& key = *given.key;
    if (key.status == Status::refused) {
      problems_.add(key_position, given.path + ": is not supported: " + std::string(key.reason));
    } else if (key.type == Type::section) {
      if (given.node->kind == Node::Kind::null && key.nullable) return;
      if (given.node->kind != Node::Kind::object)
        problems_.add(given.node->position, given.path + ": must be an object { ... }");
      else
        collect({key.path, given.path, given.name, given.node});
    } else if (key.status == Status::honoured) {
      given_.push_back(std::move(given));
    }
  }

  void store() {
    // Types first: they decide which parameters belong, and some defaults.
    std::stable_partition(given_.begin(), given_.end(),
                          [](const Given& given) { return last_name(given.key->path) == "type"; });
    bool types_done = false;
    for (const Given& given : given_) {
      if (!types_done && last_name(given.key->path) != "type") {
        types_done = true;
        set_type_defaults();
      }
      const std::string problem = set_value(*given.key, given.name, *given.node, config_);
      if (problem.empty()) continue;
      problems_.add(given.node->position, given.path + ": " + problem);
      failed_.push_back(given.key);
    }
    if (!types_done) set_type_defaults();
    if (decays() && !config_.scheduler.warmup_max_lr)
      config_.scheduler.warmup_max_lr = config_.optimizer.learning_rate;
  }

  bool decays() const { return config_.scheduler.type == "WarmupDecayLR"; }

  // DeepSpeed: WarmupLR without a maximum takes the optimizer's rate, WarmupDecayLR this one,
  // unless the file says null.
  void set_type_defaults() {
    if (decays()) config_.scheduler.warmup_max_lr = 1e-3;
  }

  const Given* find(std::string_view path) const {
    const auto found = std::ranges::find(given_, path, [](const Given& g) { return g.key->path; });
    return found == given_.end() ? nullptr : &*found;
  }

  bool failed(std::string_view path) const {
    return std::ranges::find(failed_, find_key(path)) != failed_.end();
  }

  // A parameter of another optimizer or schedule would have no effect: refused, as by DeepSpeed.
  void check_parameters() {
    for (const Given& given : given_) {
      const Key& key = *given.key;
      if (key.belongs_to.empty()) continue;
      const bool optimizer = key.path.starts_with("optimizer.");
      const std::string section = optimizer ? "optimizer" : "scheduler";
      if (failed(section + ".type")) continue;
      const std::string& type = optimizer ? config_.optimizer.type : config_.scheduler.type;
      if (belongs_to(key, type)) continue;
      std::string owners;
      for (const auto owner : key.belongs_to)
        owners += (owners.empty() ? "" : ", ") + std::string(owner);
      problems_.add(given.node->position,
                    given.path + ": " +
                        (type.empty() ? "no " + section + ".type is given that has it"
                                      : section + " " + type + " has no such parameter") +
                        "; it belongs to " + owners);
    }
    const Given* type = find("scheduler.type");
    constexpr std::string_view total = "scheduler.params.total_num_steps";
    if (type != nullptr && !failed(type->key->path) && find(total) == nullptr &&
        belongs_to(*find_key(total), config_.scheduler.type))
      problems_.add(type->node->position, std::string(total) + ": must be given for " +
                                              config_.scheduler.type +
                                              "; allowed: " + allowed_values(*find_key(total)));
  }

  // What no number of ranks can repair; resolve_batch() does the rest.
  void check_batch() {
    const BatchOptions& batch = config_.batch;
    const Given* total = find("train_batch_size");
    if (total == nullptr || batch.train_batch_size == 0) return;
    const std::int64_t micro = std::max<std::int64_t>(batch.train_micro_batch_size_per_gpu, 1);
    const std::int64_t steps = std::max<std::int64_t>(batch.gradient_accumulation_steps, 1);
    std::int64_t share = 0;
    const bool overflow = __builtin_mul_overflow(micro, steps, &share);
    if (!overflow && batch.train_batch_size % share == 0) return;
    std::string of;
    if (batch.train_micro_batch_size_per_gpu != 0)
      of = "train_micro_batch_size_per_gpu " + std::to_string(micro);
    if (batch.gradient_accumulation_steps != 0)
      of += (of.empty() ? "" : " x ") + ("gradient_accumulation_steps " + std::to_string(steps));
    problems_.add(total->node->position,
                  "train_batch_size: " + std::to_string(batch.train_batch_size) +
                      " fits no number of ranks; allowed: multiples of " + of);
  }

  void check_nesterov() {
    const optim::OptimizerOptions& optimizer = config_.optimizer;
    const Given* nesterov = find("optimizer.params.nesterov");
    if (nesterov == nullptr || !optimizer.nesterov) return;
    if (optimizer.momentum > 0 && optimizer.dampening == 0) return;
    problems_.add(nesterov->node->position,
                  nesterov->path + ": needs momentum greater than 0 and dampening 0");
  }

  ProblemList& problems_;
  Config config_;
  std::vector<Given> given_;
  std::vector<const Key*> failed_;
};

}  // namespace

Config parse_config(std::string_view text, const std::string& file, const Text& overrides) {
  ProblemList problems(file);
  Document document = parse_document(text);
  for (const Problem& problem : document.problems) problems.add(problem.position, problem.text);
  if (!document.readable) problems.throw_if_any();
  apply_overrides(document.root, overrides, problems);
  Config config = Loader(problems).load(document.root);
  problems.throw_if_any();
  return config;
}

}  // namespace zero::config_schemas

namespace zero {

Config load_config(const std::string& file, const Text& overrides) {
  using namespace config_schemas;
  return parse_config(file.empty() ? "{}" : read_config_file(file), file, overrides);
}

}  // namespace zero
