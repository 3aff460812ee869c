#include "config_schemas/legacy.h"

#include "config_schemas/values.h"

namespace zero::config_schemas {
namespace {

void erase(Node& object, std::string_view key) {
  std::erase_if(object.members, [&](const Member& member) { return member.key == key; });
}

class Converter {
 public:
  Converter(Node& root, Conversions& conversions, ProblemList& problems)
      : root_(root), conversions_(conversions), problems_(problems) {}

  void run() {
    boolean_zero();
    bfloat16();
    Member* zero = find_member(root_, "zero_optimization");
    if (zero == nullptr || zero->value.kind != Node::Kind::object) return;
    offload(zero->value, "cpu_offload");
    offload(zero->value, "cpu_offload_param");
    offload(zero->value, "cpu_offload_params");
    rename_gather(zero->value);
  }

 private:
  // "zero_optimization": true means stage 1 with the top level's allgather_size, false means stage
  // 0.
  void boolean_zero() {
    Member* member = find_member(root_, "zero_optimization");
    if (member == nullptr || member->value.kind != Node::Kind::boolean) return;
    const Position at = member->value.position;
    const bool on = member->value.text == "true";
    Node section{Node::Kind::object, at, "{", {}};
    section.members.push_back({"stage", at, {Node::Kind::number, at, on ? "1" : "0", {}}});
    Member* size = find_member(root_, "allgather_size");
    if (on && size != nullptr)
      section.members.push_back({"allgather_bucket_size", at, size->value});
    member->value = std::move(section);
    conversions_["zero_optimization.stage"] = "zero_optimization";
    if (on && size != nullptr) {
      conversions_["zero_optimization.allgather_bucket_size"] = "allgather_size";
      erase(root_, "allgather_size");
    }
  }

  void bfloat16() {
    const Member* old = find_member(root_, "bfloat16");
    if (old == nullptr) return;
    const Member* today = find_member(root_, "bf16");
    if (today != nullptr && today->value.kind != Node::Kind::null) {
      problems_.add(old->position,
                    "bfloat16: is the old name of bf16, which is given too; keep bf16");
      erase(root_, "bfloat16");
      return;
    }
    erase(root_, "bf16");
    find_member(root_, "bfloat16")->key = "bf16";
    conversions_["bf16"] = "bfloat16";
  }

  // Returns true if the old key is present and must be converted. Otherwise erases the key; reports
  // a new key given in addition.
  bool converts(Node& zero, const std::string& old, std::initializer_list<const char*> today) {
    const Member* member = find_member(zero, old);
    if (member == nullptr) return false;
    bool free = !is_auto(member->value);
    for (const char* name : today) {
      if (!free || find_member(zero, name) == nullptr) continue;
      problems_.add(member->position, "zero_optimization." + old + ": is an old form of " + name +
                                          ", which is given too; keep " + name);
      free = false;
    }
    if (!free) erase(zero, old);
    return free;
  }

  void offload(Node& zero, const std::string& old) {
    const Key& row = *find_key("zero_optimization." + old);
    const std::string today(last_name(row.reason));
    if (!converts(zero, old, {today.c_str()})) return;
    const Member member = *find_member(zero, old);
    erase(zero, old);
    Config unused;
    const Outcome outcome = set_value(row, "", member.value, unused);
    if (!outcome.problem.empty()) {
      problems_.add(member.value.position, "zero_optimization." + old + ": " + outcome.problem);
      return;
    }
    const Position at = member.value.position;
    Node section{Node::Kind::object, at, "{", {}};
    section.members.push_back(
        {"device",
         member.position,
         {Node::Kind::string, at, outcome.shown == "true" ? "cpu" : "none", {}}});
    zero.members.push_back({today, member.position, std::move(section)});
    conversions_[std::string(row.reason) + ".device"] = "zero_optimization." + old;
  }

  void rename_gather(Node& zero) {
    const std::string old = "stage3_gather_fp16_weights_on_model_save";
    const std::string today = "stage3_gather_16bit_weights_on_model_save";
    if (!converts(zero, old, {today.c_str(), "gather_16bit_weights_on_model_save"})) return;
    find_member(zero, old)->key = today;
    conversions_["zero_optimization." + today] = "zero_optimization." + old;
  }

  Node& root_;
  Conversions& conversions_;
  ProblemList& problems_;
};

}  // namespace

void convert_old_keys(Node& root, Conversions& conversions, ProblemList& problems) {
  if (root.kind == Node::Kind::object) Converter(root, conversions, problems).run();
}

}  // namespace zero::config_schemas
