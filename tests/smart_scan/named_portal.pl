#!/usr/bin/perl
# Executes a query in a named portal of the extended protocol, fetches a row, and updates it with WHERE CURRENT OF. Prints what the
# UPDATE returns. Then fetches the other rows, one after another, and prints their number.
#
#   named_portal.pl SOCKET USER DATABASE SETTINGS QUERY UPDATE       the portal has the name "named"
use strict;
use warnings;
use IO::Socket::UNIX;

my ($path, $user, $database, $settings, $query, $update) = @ARGV;
alarm 60;
my $socket = IO::Socket::UNIX->new(Peer => $path) or die "connect: $!\n";

sub send_message { my ($kind, $payload) = @_; print $socket $kind, pack('N', 4 + length $payload), $payload; $socket->flush }
sub receive {
    my ($header, $payload) = ('', '');
    read($socket, $header, 5) == 5 or die "the server closed the connection\n";
    my ($kind, $length) = unpack 'a N', $header;
    read($socket, $payload, $length - 4);
    return ($kind, $payload);
}
# Returns command tags, errors and the number of rows up to ReadyForQuery.
sub answers {
    my ($rows, @answers) = (0);
    while (1) {
        my ($kind, $payload) = receive();
        push @answers, $payload =~ s/\0.*//sr if $kind eq 'C';
        push @answers, join ' ', map { substr $_, 1 } grep { /^[CM]/ } split /\0/, $payload if $kind eq 'E';
        $rows++ if $kind eq 'D';
        return ($rows, @answers) if $kind eq 'Z';
    }
}
sub simple { send_message('Q', "$_[0]\0"); return answers() }
sub execute { send_message('E', "named\0" . pack('N', $_[0])); send_message('S', ''); return answers() }

my $startup = pack('N', 196608) . "user\0$user\0database\0$database\0\0";
print $socket pack('N', 4 + length $startup), $startup;
$socket->flush;
answers();
simple($settings);
simple('BEGIN');
send_message('P', "\0$query\0" . pack('n', 0));
send_message('B', "named\0\0" . pack('nnn', 0, 0, 0));
my ($first, @failed) = execute(1);
die "@failed\n" if @failed;
my (undef, @updated) = simple($update);
print "@updated\n";
exit 0 if $updated[0] !~ /^UPDATE/;
my ($rows) = ($first);
while (1) {
    my ($more) = execute(1);
    last unless $more;
    $rows += $more;
}
print "$rows rows\n";
simple('ROLLBACK');
