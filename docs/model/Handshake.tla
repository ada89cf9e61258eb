----------------------------- MODULE Handshake -----------------------------
(* The handshake of a job with a key, as internal/protocol/link has it at the
   levels sign and seal: greet.go, with what session.go, served.go and protect.go
   do for it. docs/model.md says what is proved of it, and how to run it.

   Cryptography is ideal. A message of the handshake is a record of what went
   into it, which nobody makes but the rank that it names. A session's key is
   the second message, which has the first one in it.

   The network is the set of all that was ever sent. Whatever is in it may come
   at any time, at either rank, any number of times, or never: that is loss, doubling,
   reordering, replay and reflection. What is for a life that is over is taken out: no
   secret that could open it is left. The forger has the key of the codes, so it makes
   hellos and answers with any ticket. A captured message of the handshake in a greeting of
   other fields is as one that nobody made, since the prologue covers those fields. Tickets travel
   in clear, so they come whenever the forger likes.

   What only delays is left out: the work at a ticket for a hello to an earlier life, the
   turns of calls, tickets that say that a rank is at work. *)
EXTENDS Naturals, FiniteSets, TLC

CONSTANTS
  Lives,      \* how many lives a rank has
  Starts,     \* the ranks that may start again
  Ids,        \* session ids that a rank draws in a life; runs end beyond
  Stale,      \* the rendezvous may tell of a life that is over
  Silence,    \* a rank may take its peer for dead at any time
  Seeking,    \* sessions may begin before the way to the peer is known
  Forger,     \* there is one
  Calms       \* the network may become calm, for good

VARIABLES
  life,       \* of each rank
  rank,       \* the state of its link
  net,        \* all messages and frames that were ever sent
  calm,       \* from now on only what is sent now arrives, and nobody starts again
  opened,     \* of all sessions that opened at a rank in its present life: rank, the peer's life, key, role
  reused,     \* a key has been given to two guards
  wronged,    \* an open session has ended for no good reason
  gaveUp      \* who has taken whom for dead: rank, its life, the peer's life

vars == <<life, rank, net, calm, opened, reused, wronged, gaveUp>>

Ranks == {0, 1}
Other(r) == 1 - r

(* Messages. n of a hello is Noise's first message: initiator and its life, the
   responder's life, and a number that stands for the ephemeral key and for the
   session's id, which go together. An answer is the first message that it is for,
   and the responder's number. *)
NoFirst == [k |-> "first", i |-> 2, il |-> 0, rl |-> 0, id |-> 0]
NoKey   == [k |-> "second", h |-> NoFirst, id |-> 0]
Firsts  == {m \in net : m.k = "first"}
Seconds == {m \in net : m.k = "second"}
Frames  == {m \in net : m.k = "frame"}
Frame(key, role, what) == [k |-> "frame", key |-> key, role |-> role, what |-> what]
Hello(n) == [fl |-> n.il, tl |-> n.rl, n |-> n] \* as its maker sends it

None == [st |-> "none", peer |-> 0, id |-> 0, path |-> FALSE, greets |-> FALSE,
         made |-> FALSE, busy |-> <<>>, key |-> NoKey, role |-> "none"]
NoAnswer == [on |-> FALSE, life |-> 0, hello |-> Hello(NoFirst), id |-> 0, key |-> NoKey]
Fresh == [s |-> None, a |-> NoAnswer, jobs |-> {}]

Init ==
  /\ life = [r \in Ranks |-> 1]
  /\ rank = [r \in Ranks |-> Fresh]
  /\ net = {} /\ calm = FALSE /\ opened = {} /\ reused = FALSE /\ wronged = FALSE /\ gaveUp = {}

----------------------------------------------------------------------------
(* Parts of the link. L is the state of rank r's. *)

Used(L, r) ==
  {L.s.id, L.a.id} \cup {j.id : j \in L.jobs}
  \cup {n.id : n \in {n \in Firsts : n.i = r /\ n.il = life[r]}}
  \cup {n.id : n \in {n \in Seconds : n.h.i # r /\ n.h.rl = life[r]}}
NewId(L, r) == CHOOSE n \in 1..99 : n \notin Used(L, r) /\ \A m \in 1..(n - 1) : m \in Used(L, r)

First(s, r) == [k |-> "first", i |-> r, il |-> life[r], rl |-> s.peer, id |-> s.id]

Yielded(L, r) == L.a.on /\ L.a.id = L.s.id /\ r > Other(r)

Withdraw(L) == [L EXCEPT !.a = NoAnswer]

Fail(L) ==
  IF L.s.st \notin {"dialing", "open"} THEN L
  ELSE LET M == [L EXCEPT !.s.st = "dead", !.s.busy = <<>>, !.s.greets = FALSE, !.s.made = FALSE]
       IN IF L.a.on /\ L.a.id = L.s.id THEN Withdraw(M) ELSE M

Begin(L, r, path, peer) == \* newSession and name
  LET untaken == {j \in L.jobs : j.cur /\ ~j.taken}
      j == CHOOSE j \in untaken : TRUE
      id == IF L.a.on THEN L.a.id ELSE IF untaken # {} THEN j.id ELSE NewId(L, r)
      s == [None EXCEPT !.st = "dialing", !.peer = peer, !.id = id, !.path = path]
  IN [L EXCEPT !.s = s, !.jobs = IF ~L.a.on /\ untaken # {} THEN (@ \ {j}) \cup {[j EXCEPT !.taken = TRUE]} ELSE @]

DialTo(L, r, k) == \* Dial
  CASE L.s.st = "none" -> Begin(L, r, TRUE, k)
    [] L.s.st = "dialing" /\ ~L.s.path -> [L EXCEPT !.s.path = TRUE, !.s.peer = k]
    [] L.s.st # "none" /\ (L.s.st # "dialing" \/ L.s.path) /\ L.s.peer >= k -> L
    [] OTHER -> Begin(Fail(L), r, TRUE, k)

DialBy(L, r, k) ==
  IF L.a.on /\ L.a.life > k THEN DialTo(L, r, L.a.life)
  ELSE LET M == DialTo(IF L.a.on /\ L.a.life < k THEN Withdraw(L) ELSE L, r, k)
       IN IF M.s.st = "dialing" /\ M.s.peer = k THEN [M EXCEPT !.s.greets = TRUE] ELSE M

IsAnswering(L, k) == \E j \in L.jobs : j.cur /\ j.life >= k
Dialing(L, k) == L.s.st = "dialing" /\ L.s.peer \in {0, k}

Welcome(L, r, k) ==
  /\ ~(L.a.on /\ L.a.life >= k)
  /\ LET s == L.s IN
     CASE s.st = "none" -> TRUE
       [] s.st # "none" /\ (s.peer > k \/ (s.st = "dead" /\ s.peer = 0)) -> FALSE
       [] s.st # "none" /\ s.peer < k /\ ~(s.st = "dead" /\ s.peer = 0) -> TRUE
       [] OTHER -> s.st = "dialing" /\ (r > Other(r) \/ ~s.greets \/ (~s.made /\ s.busy = <<>>))

Job(L, k, m, id, taken) ==
  [L EXCEPT !.jobs = {[j EXCEPT !.cur = FALSE] : j \in @} \cup
     {[life |-> k, hello |-> m, id |-> id, taken |-> taken, cur |-> TRUE]}]

----------------------------------------------------------------------------
(* Steps. Set makes a rank's state what it is after one. *)

Same == UNCHANGED <<life, calm>>
Quiet == UNCHANGED <<opened, reused, wronged, gaveUp>>
Set(r, L) == rank' = [rank EXCEPT ![r] = L]
Send(m) == net' = net \cup m

Start(r) == \* a rank starts again
  /\ ~calm /\ r \in Starts /\ life[r] < Lives
  /\ life' = [life EXCEPT ![r] = @ + 1]
  /\ Set(r, Fresh)
  /\ net' = {m \in net : CASE m.k = "first" -> m.i = r
                          [] m.k = "second" -> m.h.i # r
                          [] OTHER -> m.key.h.i = (IF m.role = "i" THEN r ELSE Other(r))}
  /\ opened' = {o \in opened : o.r # r}
  /\ UNCHANGED <<calm, reused, wronged, gaveUp>>

\* An open session of L ends by its peer's own reset, by the peer's own restart, or for silence.
Ends(r, L, why) ==
  LET p == L.s.peer
      rightly == CASE why = "reset" -> [r |-> Other(r), l |-> p, p |-> life[r]] \in gaveUp
                   [] why = "restart" -> life[Other(r)] > p
                   [] OTHER -> TRUE
  IN wronged' = (wronged \/ (L.s.st = "open" /\ ~rightly))

Dial(r, k) ==
  /\ k <= life[Other(r)] /\ (Stale \/ k = life[Other(r)])
  /\ LET L == rank[r]
         M == DialBy(L, r, k) IN
     /\ M # L /\ Set(r, M)
     /\ IF M.s.id # L.s.id THEN Ends(r, L, "restart") ELSE UNCHANGED wronged
  /\ Same /\ UNCHANGED <<net, opened, reused, gaveUp>>

Connect(r) ==
  /\ Seeking /\ ~calm /\ rank[r].s.st = "none"
  /\ Set(r, Begin(rank[r], r, FALSE, 0)) /\ Same /\ UNCHANGED net /\ Quiet

NotFound(r) ==
  LET L == rank[r] IN
  /\ ~calm /\ L.s.st = "dialing" /\ ~L.s.path
  /\ Set(r, IF L.a.on THEN [L EXCEPT !.s.path = TRUE, !.s.peer = L.a.life] ELSE [Fail(L) EXCEPT !.s = None])
  /\ Same /\ UNCHANGED net /\ Quiet

MakeHello(r) ==
  LET L == rank[r] IN
  /\ L.s.st = "dialing" /\ L.s.path /\ L.s.greets /\ ~L.s.made /\ L.s.busy = <<>> /\ ~Yielded(L, r)
  /\ Set(r, [L EXCEPT !.s.busy = <<"make">>]) /\ Same /\ UNCHANGED net /\ Quiet

HelloMade(r) ==
  LET L == rank[r] IN
  /\ L.s.busy = <<"make">>
  /\ IF Yielded(L, r) THEN Set(r, [L EXCEPT !.s.busy = <<>>]) /\ UNCHANGED net
     ELSE Set(r, [L EXCEPT !.s.busy = <<>>, !.s.made = TRUE]) /\ Send({First(L.s, r)})
  /\ Same /\ Quiet

ReceiveHello(r, m) ==
  LET L == rank[r]
      s == L.s IN
  /\ m.tl = life[r]
  /\ ~(L.a.on /\ L.a.life = m.fl) \* it gets the answer, which is in net, or nothing
  /\ ~(s.peer = m.fl /\ s.st \in {"open", "dead"}) \* it gets a frame, which is in net
  /\ Welcome(L, r, m.fl) /\ ~IsAnswering(L, m.fl)
  /\ Set(r, IF Dialing(L, m.fl) THEN Job(L, m.fl, m, s.id, TRUE) ELSE Job(L, m.fl, m, NewId(L, r), FALSE))
  /\ Same /\ UNCHANGED net /\ Quiet

\* the ticket's signature and the first message are right
Sound(r, m) == m.fl <= life[Other(r)] /\ m.n \in Firsts /\ m.n.i = Other(r) /\ m.n.il = m.fl /\ m.n.rl = life[r] /\ m.tl = life[r]

JobDone(r, j, found) ==
  LET L == [rank[r] EXCEPT !.jobs = {IF i.life = j.life THEN [i EXCEPT !.cur = FALSE] ELSE i : i \in @ \ {j}}]
      d == Dialing(L, j.life)
      fits == Welcome(L, r, j.life) /\ j.taken = d /\ (d => L.s.id = j.id)
      key == [k |-> "second", h |-> j.hello.n, id |-> j.id] IN
  /\ j \in rank[r].jobs
  /\ IF found /\ Sound(r, j.hello) /\ fits
     THEN /\ Set(r, [L EXCEPT !.a = [on |-> TRUE, life |-> j.life, hello |-> j.hello, id |-> j.id, key |-> key]])
          /\ Send({key}) /\ reused' = (reused \/ key \in net)
     ELSE Set(r, L) /\ UNCHANGED <<net, reused>>
  /\ Same /\ UNCHANGED <<opened, wronged, gaveUp>>

ReceiveAnswer(r, n) ==
  LET L == rank[r] IN
  /\ L.s.st = "dialing" /\ L.s.greets /\ L.s.made /\ L.s.busy = <<>> /\ ~Yielded(L, r)
  /\ Set(r, [L EXCEPT !.s.busy = <<"finish", n>>]) /\ Same /\ UNCHANGED net /\ Quiet

Open(s, peer, key, role) ==
  [s EXCEPT !.st = "open", !.peer = peer, !.key = key, !.role = role, !.greets = FALSE, !.made = FALSE, !.busy = <<>>, !.path = TRUE]

Opening(r, peer, key, role) == opened' = opened \cup {[r |-> r, p |-> peer, key |-> key, role |-> role]}

AnswerRead(r) ==
  LET L == rank[r] IN
  /\ L.s.busy # <<>> /\ L.s.busy[1] = "finish"
  /\ LET n == L.s.busy[2]
         M == IF L.a.on /\ L.a.id = L.s.id THEN Withdraw(L) ELSE L IN
     IF n \in Seconds /\ n.h = First(L.s, r) /\ ~Yielded(L, r)
     THEN /\ Set(r, [M EXCEPT !.s = Open(L.s, L.s.peer, n, "i")])
          /\ Send({Frame(n, "i", "data")}) /\ Opening(r, L.s.peer, n, "i")
          /\ reused' = (reused \/ \E o \in opened : o.key = n /\ o.role = "i")
     ELSE Set(r, [L EXCEPT !.s.busy = <<>>]) /\ UNCHANGED <<net, opened, reused>>
  /\ Same /\ UNCHANGED <<wronged, gaveUp>>

ReceiveTicket(r, k) ==
  LET L == rank[r] IN
  /\ L.s.st = "dialing" /\ L.s.greets /\ k > L.s.peer /\ L.s.busy = <<>>
  /\ Set(r, [L EXCEPT !.s.busy = <<"verify", k>>]) /\ Same /\ UNCHANGED net /\ Quiet

TicketRead(r) ==
  LET L == rank[r] IN
  /\ L.s.busy # <<>> /\ L.s.busy[1] = "verify"
  /\ Set(r, IF L.s.busy[2] <= life[Other(r)] THEN Fail(L) ELSE [L EXCEPT !.s.busy = <<>>])
  /\ Same /\ UNCHANGED net /\ Quiet

\* a frame that the guard of an answered hello finds genuine: the state after arise
Arise(L, r) ==
  LET s == L.s
      up(M) == [M EXCEPT !.s = Open(M.s, L.a.life, L.a.key, "r"), !.a = NoAnswer] IN
  CASE s.st = "none" -> up(Begin(L, r, TRUE, 0))
    [] s.st = "dialing" /\ s.id = L.a.id -> up(L)
    [] s.st # "none" /\ ~(s.st = "dialing" /\ s.id = L.a.id) /\ s.peer < L.a.life -> up(Begin(Fail(L), r, TRUE, 0))
    [] OTHER -> Withdraw(L)

TakeFrame(L, f) == IF L.s.st = "open" /\ f.what = "reset" THEN Fail(L) ELSE L

ReceiveFrame(r, f) ==
  LET L == rank[r]
      guarded == L.s.st = "open" /\ L.s.key = f.key /\ L.s.role # f.role
      waits == L.a.on /\ L.a.key = f.key /\ f.role = "i"
      M == IF guarded THEN L ELSE Arise(L, r)
      arisen == ~guarded /\ M.s.st = "open" /\ M.s.key = f.key
      N == TakeFrame(M, f) IN
  /\ guarded \/ waits
  /\ N # L /\ Set(r, N)
  /\ IF arisen THEN Opening(r, M.s.peer, f.key, "r") /\ Send({Frame(f.key, "r", "data")}) ELSE UNCHANGED <<opened, net>>
  /\ IF guarded THEN Ends(r, L, "reset")
     ELSE IF M.s.id # L.s.id THEN Ends(r, L, "restart") ELSE UNCHANGED wronged
  /\ Same /\ UNCHANGED <<reused, gaveUp>>

GiveUp(r) ==
  LET L == rank[r] IN
  /\ Silence /\ ~calm /\ L.s.st \in {"dialing", "open"} /\ L.s.path
  /\ Set(r, Fail(L))
  /\ Send(IF L.s.st = "open" THEN {Frame(L.s.key, L.s.role, "reset")} ELSE {})
  /\ gaveUp' = gaveUp \cup {[r |-> r, l |-> life[r], p |-> L.s.peer]}
  /\ Ends(r, L, "silence") /\ Same /\ UNCHANGED <<opened, reused>>

----------------------------------------------------------------------------

\* Whatever was ever sent, and whatever the forger makes of it. A life that has not
\* begun has no ticket that is signed.
Hellos(r) == {Hello(n) : n \in Firsts} \cup
  IF Forger THEN {[fl |-> k, tl |-> life[r], n |-> NoFirst] : k \in 1..(life[Other(r)] + 1)} ELSE {}
Answers == Seconds \cup IF Forger THEN {NoKey} ELSE {}
Tickets(r) == 1..(life[Other(r)]) \cup IF Forger THEN {life[Other(r)] + 1} ELSE {}

Computed(r) ==
  \/ HelloMade(r) \/ AnswerRead(r) \/ TicketRead(r)
  \/ \E j \in rank[r].jobs : JobDone(r, j, TRUE)

Wild ==
  /\ ~calm
  /\ \/ \E r \in Ranks :
          \/ Start(r) \/ Connect(r) \/ NotFound(r) \/ GiveUp(r) \/ MakeHello(r) \/ Computed(r)
          \/ \E k \in 1..Lives : Dial(r, k)
          \/ \E m \in Hellos(r) : ReceiveHello(r, m)
          \/ \E n \in Answers : ReceiveAnswer(r, n)
          \/ \E k \in Tickets(r) : ReceiveTicket(r, k)
          \/ \E f \in Frames : ReceiveFrame(r, f)
          \/ \E j \in rank[r].jobs : JobDone(r, j, FALSE) \* the way is not found
     \/ /\ Calms /\ calm' = TRUE /\ UNCHANGED <<life, rank, net, opened, reused, wronged, gaveUp>>

\* What the ranks send when all of it arrives: each is sent again until it has done its work.
Calm ==
  /\ calm
  /\ \E r \in Ranks :
       LET s == rank[Other(r)].s
           a == rank[Other(r)].a IN
       \/ Dial(r, life[Other(r)]) \/ MakeHello(r) \/ Computed(r)
       \/ s.made /\ ~Yielded(rank[Other(r)], Other(r)) /\ ReceiveHello(r, Hello(First(s, Other(r))))
       \/ a.on /\ rank[r].s.made /\ a.key.h = First(rank[r].s, r) /\ ReceiveAnswer(r, a.key)
       \/ rank[r].s.made /\ rank[r].s.peer < life[Other(r)] /\ ReceiveTicket(r, life[Other(r)])
       \/ s.st = "open" /\ ReceiveFrame(r, Frame(s.key, s.role, "data"))

Current(r) == rank[r].s.st = "open" /\ rank[r].s.peer = life[Other(r)]
Good == Current(0) /\ Current(1)

\* A calm network that comes to rest otherwise is a deadlock, which TLC finds.
Done == calm /\ (Good \/ gaveUp # {}) /\ UNCHANGED vars

Next == Wild \/ Calm \/ Done
Spec == Init /\ [][Next]_vars /\ WF_vars(Calm)

Bound == \A r \in Ranks : Cardinality(rank[r].jobs) <= 2 /\ \A n \in Used(rank[r], r) : n <= Ids

----------------------------------------------------------------------------
(* What holds. *)

\* Two ranks that are open with each other's present lives have one key, each its own direction.
Agreement == Current(0) /\ Current(1) =>
  rank[0].s.key = rank[1].s.key /\ rank[0].s.role # rank[1].s.role

\* A session's key is of a first and a second message of its two ends, in those lives, for each other.
Authentic == \A r \in Ranks :
  LET s == rank[r].s
      h == s.key.h IN
  s.st = "open" => IF s.role = "i" THEN h.i = r /\ h.il = life[r] /\ h.rl = s.peer
                   ELSE h.i = Other(r) /\ h.il = s.peer /\ h.rl = life[r]

\* A pair of incarnations has one session at each end, and not two keys.
OneSession == \A o, p \in opened :
  (o.r = p.r /\ o.p = p.p) => o = p

\* No key protects the frames of two guards, each of which numbers from 0.
NoNonceTwice == ~reused

EndsRightly == ~wronged

\* Who is open is heard by the peer, unless one has taken the other for dead.
Heard == \A r \in Ranks : Current(r) /\ gaveUp = {} =>
  LET L == rank[Other(r)] IN
  \/ L.s.st = "open" /\ L.s.key = rank[r].s.key
  \/ L.a.on /\ L.a.key = rank[r].s.key

\* A network that is calm opens the session, from whatever state.
Comes == calm /\ gaveUp = {} ~> Good
=============================================================================
