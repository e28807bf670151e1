#include "common/grammar/json_schema.h"

#include <utility>

#include "common/base/json.h"
#include "common/base/sampling_params.h"
#include "common/grammar/json_schema_reader.h"

namespace foretoken {
namespace {

constexpr JsonLimits kSchemaLimits = {.max_bytes = kMaxConstraintBytes,
                                      .max_depth = 64,
                                      .max_nodes = 40'000,
                                      .max_keys = kMaxOrderedKeys};

Error refused_schema(std::string message) { return {ErrorCode::kInvalidValue, std::move(message)}; }

}  // namespace

Result<ExpressionId> read_json_schema(std::string_view schema, Expressions& expressions) {
  const auto checked = parse_json(schema, kSchemaLimits);
  if (!checked.ok()) return refused_schema(checked.error().message);
  if (!checked->is_object() && !checked->is_boolean())
    return refused_schema("a JSON Schema must be an object, true or false");
  const OrderedJson root = OrderedJson::parse(schema);
  SchemaDocument document(root);
  JsonSchemaReader reader(document, expressions);
  const ExpressionId whole = reader.read();
  if (document.failed()) return refused_schema(document.problem());
  return whole;
}

}  // namespace foretoken
