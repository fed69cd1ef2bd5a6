#!/usr/bin/perl
# Sends valid or invalid frames (docs/format/wire.md) to a cell's socket. Prints the kinds of the received frames in one
# line.
#
#   socket.pl SOCKET VERSION CASE       VERSION: of the protocol. CASE: hello, garbage, version, length, kind, request, early, cut
use strict;
use warnings;
use IO::Socket::UNIX;

my ($path, $protocol, $case) = @ARGV;
$SIG{PIPE} = 'IGNORE';
alarm 20;
my $socket = IO::Socket::UNIX->new(Peer => $path) or do { print "no connection: $!\n"; exit };

sub frame {
    my ($kind, $payload, $version, $length) = @_;
    return pack('a4 S< S< L< L<', 'CLR1', $kind, $version // $protocol, $length // length $payload, 0) . $payload;
}
my $hello = frame(1, pack('L< L< Q< Q<', $$, 5, 7, 9));
srand 1;
my $noise = join '', map { chr int rand 256 } 1 .. 4096;
my %sent = (
    hello   => $hello,
    garbage => $noise,
    version => frame(1, pack('L< L< Q< Q<', $$, 5, 7, 9), $protocol - 1),
    length  => frame(1, '', undef, 0xffffffff),
    kind    => frame(77, ''),
    request => $hello . frame(2, $noise),
    early   => $hello . frame(3, pack('L< L<', 0, 128)),
    cut     => $hello . substr(frame(2, $noise), 0, 100),
);
$socket->syswrite($sent{$case} // die "no case $case\n");
$socket->shutdown(1);

my $received = '';
while ($socket->sysread(my $piece, 65536)) { $received .= $piece }
my @names = map { $_ == 64 ? 'Welcome' : $_ == 69 ? 'Error' : $_ } kinds($received);
print join(' ', @names, 'closed'), "\n";

sub kinds {
    my ($bytes) = @_;
    my @kinds;
    while (length $bytes >= 16) {
        my ($magic, $kind, $version, $length) = unpack 'a4 S< S< L<', $bytes;
        die "not a frame\n" if $magic ne 'CLR1' || $version != $protocol;
        push @kinds, $kind;
        $bytes = substr $bytes, 16 + $length;
    }
    return @kinds;
}
