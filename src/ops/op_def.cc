#include "ops/op_def.h"

#include <memory>
#include <unordered_map>

namespace dovetail {
namespace {

constexpr const OpDef* kOps[] = {
#define OP(Name) &kOp##Name,
#include "ops/ops.def"
#undef OP
};

const std::vector<Schema>& Schemas() {
  static const std::vector<Schema>* schemas = [] {
    auto* v = new std::vector<Schema>;
    for (const OpDef* op : kOps) v->push_back(ParseSchema(op->schema));
    return v;
  }();
  return *schemas;
}

using NameTable = std::unordered_map<std::string_view, OpId>;
const NameTable& Names(std::string_view OpDef::*field) {
  auto make = [](std::string_view OpDef::*f) {
    auto* t = new NameTable;
    for (size_t i = 0; i < std::size(kOps); ++i)
      if (!(kOps[i]->*f).empty()) t->emplace(kOps[i]->*f, static_cast<OpId>(i));
    return t;
  };
  static const NameTable* by_name = make(&OpDef::name);
  static const NameTable* by_out = make(&OpDef::out_variant);
  return field == &OpDef::name ? *by_name : *by_out;
}
OpId Lookup(const NameTable& table, std::string_view name) {
  auto it = table.find(name);
  return it == table.end() ? OpId::kCount : it->second;
}

}  // namespace

const OpDef& GetOp(OpId id) { return *kOps[static_cast<size_t>(id)]; }
bool ComputesOnIntegers(OpId id) {
  // Padding is of a real number, which must be quantized first.
  return id != OpId::kConstantPadNd && (GetOp(id).traits & (kDataMovement | kStructural | kQuantized));
}
const Schema& GetSchema(OpId id) { return Schemas()[static_cast<size_t>(id)]; }
OpId FindOp(std::string_view name) { return Lookup(Names(&OpDef::name), name); }
OpId FindOutVariant(std::string_view name) { return Lookup(Names(&OpDef::out_variant), name); }

}  // namespace dovetail
