// The spans of one HTTP request: itself, and for each answer that it asks the router for the
// model's span with its parts. Those are made from the times that the answer carries, when it is
// there: nothing is sent to another service for them. HTTP thread only.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "common/base/clock.h"
#include "services/edge/generation.h"
#include "services/edge/http_error.h"
#include "services/edge/http_types.h"
#include "services/edge/otlp.h"

namespace foretoken::edge {

class RequestTrace {
 public:
  using Sink = std::function<void(std::vector<Span>)>;
  // `parent`: 0 if the client named none.
  RequestTrace(const HttpRequest& request,
               const TraceContext& context,
               SpanId parent,
               bool captures_text,
               Sink sink);

  const TraceContext& context() const { return context_; }
  // Its requests leave for the router now.
  void ask(const Generation& generation);
  void on_answer(std::size_t choice, const wire::ClientAnswer& answer);
  // `status` of the reply, 0 if there was none; `is_gone`: the client went away before the end.
  void end(unsigned status, bool is_gone);

 private:
  // Some of many, evenly: when there is no room, every second one goes.
  class Events {
   public:
    static constexpr std::size_t kMost = 32;
    void add(SpanEvent event);
    std::vector<SpanEvent> taken;

   private:
    std::uint64_t stride_ = 1, n_ = 0;
  };
  struct Choice {
    Span span;
    Events events;
    std::string text;  // of the answer, if it is captured
    bool is_over = false;
  };

  std::int64_t now_ns() const;
  Span child_of(const TraceContext& parent, const std::string& name, std::int64_t begin) const;
  void on_piece(Choice& choice, const wire::ClientPiece& piece);
  void on_reply(Choice& choice, const wire::ClientReply& reply);
  void on_error(Choice& choice, const wire::ClientError& error);
  void add_parts(Choice& choice, const wire::ReplyMetrics& metrics);

  TraceContext context_;
  bool captures_text_;
  Sink sink_;
  // Wall clock at the beginning; all else by the steady clock.
  std::int64_t begin_ns_;
  TimePoint began_;
  Span request_;
  std::vector<Choice> choices_;
  std::vector<Span> parts_;
};

}  // namespace foretoken::edge
