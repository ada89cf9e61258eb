------------------------------ MODULE Renewal ------------------------------
(* The frames of one direction of a session at the levels sign and seal, as
   internal/protocol/secure/guard.go and internal/protocol/link/protect.go number and
   accept them: epochs that end by number and by time, the receiver's keys, the window
   of replays, and the former keys that a sender of sealed frames keeps.

   The network loses, doubles and reorders frames, and brings back old ones. Each frame has
   a packet number, as data have; its number is its nonce. *)
EXTENDS Naturals, FiniteSets

CONSTANTS
  Size,    \* numbers of an epoch
  Span,    \* numbers that the window knows below the largest
  Last,    \* runs end with this number
  Flight,  \* frames without an acknowledgement that the sender allows itself; 0: any number
  Hasty    \* the sender renews its key without waiting for an acknowledgement, as it must not

VARIABLES
  number,  \* of the sender's next frame
  packet,  \* of its next packet
  renewed, \* the epoch that Renew has last known of
  since,   \* the first packet since then
  acked,   \* the largest packet that the sender knows to have come
  former,  \* epochs whose keys the sender still has for frames in flight
  flying,  \* frames in flight, each with its number and packet
  net,     \* frames that were sent
  epoch,   \* the receiver's
  keeps,   \* it has the key of the epoch before
  came,    \* numbers that were accepted
  twice    \* a number was accepted twice

vars == <<number, packet, renewed, since, acked, former, flying, net, epoch, keeps, came, twice>>

Of(n) == n \div Size
Max(S) == CHOOSE n \in S : \A m \in S : m <= n

Init ==
  /\ number = 0 /\ packet = 1 /\ renewed = 0 /\ since = 1 /\ acked = 0
  /\ former = {} /\ flying = {} /\ net = {} /\ epoch = 0 /\ keeps = FALSE /\ came = {} /\ twice = FALSE

\* Guard.Forget, by link.forget: keys of epochs before the oldest frame in flight
Kept(keys, frames, next) ==
  LET oldest == {Of(f.n) : f \in frames} \cup {Of(next)} IN {e \in keys : \E o \in oldest : o <= e}

\* Guard.Seal of a frame; again: one in flight, which goes under a new number
Put(frames) ==
  LET f == [n |-> number, p |-> packet] IN
  /\ (number + 1) % Size = 0 => epoch = Of(number) \* it is silence that Size frames get lost in a row
  /\ number' = number + 1 /\ packet' = packet + 1
  /\ net' = net \cup {f} /\ flying' = frames \cup {f}
  /\ former' = IF (number + 1) % Size = 0 THEN Kept(former \cup {Of(number)}, frames \cup {f}, number + 1) ELSE former
  /\ UNCHANGED <<renewed, since, acked, epoch, keeps, came, twice>>

Seal ==
  /\ number < Last
  /\ Flight = 0 \/ Cardinality(flying) < Flight
  /\ Put(flying)

SealAgain == number < Last /\ \E f \in flying : Put(flying \ {f})

\* link.renew when its time has come, and Guard.Renew
Renew ==
  /\ acked >= since \/ Hasty
  /\ number < Last
  /\ IF Of(number) = renewed /\ number % Size # 0
     THEN /\ number' = (renewed + 1) * Size
          /\ former' = Kept(former \cup {renewed}, flying, number')
     ELSE UNCHANGED <<number, former>>
  /\ renewed' = Of(number') /\ since' = packet
  /\ UNCHANGED <<packet, acked, flying, net, epoch, keeps, came, twice>>

\* Guard.Open
Fits(n) == Of(n) \in {epoch, epoch + 1} \/ (keeps /\ Of(n) + 1 = epoch)
FreshNumber(n) == IF came = {} THEN TRUE ELSE n > Max(came) \/ (n + Span > Max(came) /\ n \notin came)
Open ==
  /\ \E f \in net :
       /\ Fits(f.n) /\ FreshNumber(f.n)
       /\ twice' = (twice \/ f.n \in came)
       /\ came' = came \cup {f.n}
       /\ IF Of(f.n) > epoch THEN epoch' = epoch + 1 /\ keeps' = TRUE ELSE UNCHANGED <<epoch, keeps>>
  /\ UNCHANGED <<number, packet, renewed, since, acked, former, flying, net>>

\* ten seconds after the first frame of an epoch
Drop == keeps /\ keeps' = FALSE /\ UNCHANGED <<number, packet, renewed, since, acked, former, flying, net, epoch, came, twice>>

\* an acknowledgement of some packet comes, be it of the present epoch or late
Acknowledge ==
  /\ \E f \in flying :
       /\ f.n \in came
       /\ acked' = IF f.p > acked THEN f.p ELSE acked
       /\ flying' = flying \ {f}
  /\ UNCHANGED <<number, packet, renewed, since, former, net, epoch, keeps, came, twice>>

Next == Seal \/ SealAgain \/ Renew \/ Open \/ Drop \/ Acknowledge
Spec == Init /\ [][Next]_vars

----------------------------------------------------------------------------

\* No nonce seals two frames.
NoNonceTwice == \A f, g \in net : f.n = g.n => f = g

\* No frame is believed twice.
BelievedOnce == ~twice

\* The receiver knows the key of what is sent next.
Understood == Of(number) <= epoch + 1

\* The receiver is never ahead of the sender.
NotAhead == epoch <= Of(number)

\* The sender has the key of each frame that it may send again.
Unsealable == \A f \in flying : Of(f.n) \in former \cup {Of(number)}
=============================================================================
